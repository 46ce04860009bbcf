// Reference of embed.h.
#include "ops/embed.h"

namespace assay::ops {

void embed_ref(const quant::Format& format, const std::byte* row, int64_t d, float scale, float* y) noexcept {
  quant::decode_row(format, row, d, y);
  for (int64_t j = 0; j < d; ++j) y[j] = y[j] * scale;
}

}  // namespace assay::ops
