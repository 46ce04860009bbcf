// F32, F16 and BF16: each value alone, rounded to nearest, halves to even.
#pragma once

#include <cstring>

#include "num/f16.h"
#include "quant/encode/encoder.h"

namespace assay::quant::encode {

ASSAY_FN void encode_f32_row(const float* x, const float*, int64_t n, Effort, std::byte* out) noexcept {
  std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
}
ASSAY_FN void encode_f16_row(const float* x, const float*, int64_t n, Effort, std::byte* out) noexcept {
  for (int64_t j = 0; j < n; ++j) {
    const uint16_t half = num::float_to_half(x[j]);
    std::memcpy(out + 2 * j, &half, 2);
  }
}
ASSAY_FN void encode_bf16_row(const float* x, const float*, int64_t n, Effort, std::byte* out) noexcept {
  for (int64_t j = 0; j < n; ++j) {
    const uint16_t half = num::float_to_bf16(x[j]);
    std::memcpy(out + 2 * j, &half, 2);
  }
}

}  // namespace assay::quant::encode
