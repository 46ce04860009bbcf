// Every block format as a type, for code that is compiled once per format. A new format is its header and its line
// here.
#pragma once

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

template <class B, tensor::DType type>
struct BlockFormat {
  using Block = B;
  static constexpr tensor::DType kDType = type;
};
template <class... Formats>
struct BlockFormats {};

// In blocks of 32, dotted with A32.
using Formats32 =
    BlockFormats<BlockFormat<BlockQ4_0, tensor::DType::Q4_0>, BlockFormat<BlockQ4_1, tensor::DType::Q4_1>,
                 BlockFormat<BlockQ5_0, tensor::DType::Q5_0>, BlockFormat<BlockQ5_1, tensor::DType::Q5_1>,
                 BlockFormat<BlockQ8_0, tensor::DType::Q8_0>, BlockFormat<BlockIQ4_NL, tensor::DType::IQ4_NL>,
                 BlockFormat<BlockMXFP4, tensor::DType::MXFP4>>;

// In superblocks of 256, dotted with A256.
using Formats256 =
    BlockFormats<BlockFormat<BlockQ2_K, tensor::DType::Q2_K>, BlockFormat<BlockQ3_K, tensor::DType::Q3_K>,
                 BlockFormat<BlockQ4_K, tensor::DType::Q4_K>, BlockFormat<BlockQ5_K, tensor::DType::Q5_K>,
                 BlockFormat<BlockQ6_K, tensor::DType::Q6_K>, BlockFormat<BlockIQ2_XXS, tensor::DType::IQ2_XXS>,
                 BlockFormat<BlockIQ2_XS, tensor::DType::IQ2_XS>, BlockFormat<BlockIQ2_S, tensor::DType::IQ2_S>,
                 BlockFormat<BlockIQ3_XXS, tensor::DType::IQ3_XXS>, BlockFormat<BlockIQ3_S, tensor::DType::IQ3_S>,
                 BlockFormat<BlockIQ1_S, tensor::DType::IQ1_S>, BlockFormat<BlockIQ4_XS, tensor::DType::IQ4_XS>,
                 BlockFormat<BlockTQ1_0, tensor::DType::TQ1_0>, BlockFormat<BlockTQ2_0, tensor::DType::TQ2_0>>;

}  // namespace assay::quant
