// F32, F16 and BF16: blocks of one element, dotted in f32.
#pragma once

#include <bit>

#include "quant/block.h"

namespace assay::quant {

ASSAY_FN void decode_f32(const std::byte* bytes, float* out) noexcept { *out = load_block<float>(bytes); }
ASSAY_FN void decode_f16(const std::byte* bytes, float* out) noexcept {
  *out = num::half_to_float(load_block<uint16_t>(bytes));
}
ASSAY_FN void decode_bf16(const std::byte* bytes, float* out) noexcept {
  *out = num::bf16_to_float(load_block<uint16_t>(bytes));
}

}  // namespace assay::quant
