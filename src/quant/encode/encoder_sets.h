// The sets of encoders, one function each; encoders.cpp and the sets' own sources.
#pragma once

#include "quant/encode/encoder.h"

namespace assay::quant::encode {

std::span<const Encoder> plain_encoders() noexcept;
std::span<const Encoder> avx2_encoders() noexcept;
std::span<const Encoder> avx512_encoders() noexcept;

// Every set of this kind of processor, the plain one first; sets_x86.cpp or sets_plain.cpp.
std::span<const EncoderSet> sets_of_this_processor() noexcept;

}  // namespace assay::quant::encode
