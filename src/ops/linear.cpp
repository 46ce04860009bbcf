// Reference of linear.h.
#include "ops/linear.h"

namespace assay::ops {

float linear_ref(const quant::Format& format, const std::byte* row, const quant::Activations& x, int64_t token,
                 const float* bias) noexcept {
  const float dot = quant::dot_ref(format, row, x, token);
  return bias == nullptr ? dot : dot + *bias;
}

float linear_f32_ref(const quant::Format& format, const std::byte* row, const float* x, int64_t k, const float* bias) noexcept {
  const float dot = quant::dot_f32_ref(format, row, x, k);
  return bias == nullptr ? dot : dot + *bias;
}

}  // namespace assay::ops
