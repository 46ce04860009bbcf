// The list of weight formats. A new format is its header and its line here.
#include <algorithm>
#include <iterator>

#include "quant/float.h"
#include "quant/iq1_s.h"
#include "quant/iq2_s.h"
#include "quant/iq2_xs.h"
#include "quant/iq2_xxs.h"
#include "quant/iq3_s.h"
#include "quant/iq3_xxs.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"

namespace assay::quant {
namespace {

using tensor::DType;

constexpr Format kFormats[] = {
    {DType::F32, Activation::f32, false, &decode_f32, nullptr, nullptr, nullptr},
    {DType::F16, Activation::f32, false, &decode_f16, nullptr, nullptr, nullptr},
    {DType::BF16, Activation::f32, false, &decode_bf16, nullptr, nullptr, nullptr},
    make_format_32<BlockQ4_0>(DType::Q4_0),
    make_format_32<BlockQ4_1>(DType::Q4_1),
    make_format_32<BlockQ5_0>(DType::Q5_0),
    make_format_32<BlockQ5_1>(DType::Q5_1),
    make_format_32<BlockQ8_0>(DType::Q8_0),
    make_format_32<BlockIQ4_NL>(DType::IQ4_NL),
    make_format_32<BlockMXFP4>(DType::MXFP4),
    make_format_256<BlockQ2_K>(DType::Q2_K),
    make_format_256<BlockQ3_K>(DType::Q3_K),
    make_format_256<BlockQ4_K>(DType::Q4_K),
    make_format_256<BlockQ5_K>(DType::Q5_K),
    make_format_256<BlockQ6_K>(DType::Q6_K),
    make_format_256<BlockIQ2_XXS>(DType::IQ2_XXS),
    make_format_256<BlockIQ2_XS>(DType::IQ2_XS),
    make_format_256<BlockIQ2_S>(DType::IQ2_S),
    make_format_256<BlockIQ3_XXS>(DType::IQ3_XXS),
    make_format_256<BlockIQ3_S>(DType::IQ3_S),
    make_format_256<BlockIQ1_S>(DType::IQ1_S),
    make_format_256<BlockIQ4_XS>(DType::IQ4_XS),
    make_format_256<BlockTQ1_0>(DType::TQ1_0),
    make_format_256<BlockTQ2_0>(DType::TQ2_0),
};

}  // namespace

const Format* find_format(tensor::DType dtype) noexcept {
  const Format* found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.dtype == dtype; });
  return found == std::end(kFormats) ? nullptr : found;
}

std::span<const Format> all_formats() noexcept { return kFormats; }

void decode_row(const Format& format, const std::byte* row, int64_t n_elements, float* out) noexcept {
  const tensor::DTypeTraits& t = tensor::traits(format.dtype);
  for (int64_t j = 0; j < n_elements; j += t.block_elements, row += t.block_bytes) format.decode(row, out + j);
}

}  // namespace assay::quant
