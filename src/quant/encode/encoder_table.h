// The encoders over one type of lanes, as a table; each set's source makes its own. Formats that gain nothing from
// lanes are in the plain set alone (encoders_plain.cpp).
#pragma once

#include <array>
#include <cstring>

#include "quant/encode/codebook_formats.h"
#include "quant/encode/few_levels.h"
#include "quant/encode/signed_32.h"
#include "quant/encode/superblock_affine.h"
#include "quant/encode/superblock_signed.h"

namespace assay::quant::encode {

template <class Format, int block_elements>
void encode_row(const float* x, const float* w, int64_t n, Effort effort, std::byte* out) noexcept {
  for (int64_t j = 0; j < n; j += block_elements) {
    const typename Format::Block block =
        Format::encode({x + j, w == nullptr ? nullptr : w + j, block_elements}, effort);
    std::memcpy(out, &block, sizeof block);
    out += sizeof block;
  }
}

template <class L>
constexpr auto make_encoders() noexcept {
  using tensor::DType;
  return std::array{
      Encoder{DType::Q4_0, &encode_row<SignedQ4_0<L>, 32>},
      Encoder{DType::Q4_1, &encode_row<AffineQ4_1<L>, 32>},
      Encoder{DType::Q5_0, &encode_row<SignedQ5_0<L>, 32>},
      Encoder{DType::Q5_1, &encode_row<AffineQ5_1<L>, 32>},
      Encoder{DType::Q8_0, &encode_row<SignedQ8_0<L>, 32>},
      Encoder{DType::IQ4_NL, &encode_row<SignedIq4Nl<L>, 32>},
      Encoder{DType::MXFP4, &encode_row<PowerMxfp4<L>, 32>},
      Encoder{DType::Q2_K, &encode_row<SuperQ2_K<L>, 256>},
      Encoder{DType::Q3_K, &encode_row<SuperQ3_K<L>, 256>},
      Encoder{DType::Q4_K, &encode_row<SuperQ4_K<L>, 256>},
      Encoder{DType::Q5_K, &encode_row<SuperQ5_K<L>, 256>},
      Encoder{DType::Q6_K, &encode_row<SuperQ6_K<L>, 256>},
      Encoder{DType::IQ4_XS, &encode_row<SuperIq4Xs<L>, 256>},
      Encoder{DType::IQ1_S, &encode_row<CodebookIq1S<L>, 256>},
      Encoder{DType::IQ2_XXS, &encode_row<CodebookIq2Xxs<L>, 256>},
      Encoder{DType::IQ2_XS, &encode_row<CodebookIq2Xs<L>, 256>},
      Encoder{DType::IQ2_S, &encode_row<CodebookIq2S<L>, 256>},
      Encoder{DType::IQ3_XXS, &encode_row<CodebookIq3Xxs<L>, 256>},
      Encoder{DType::IQ3_S, &encode_row<CodebookIq3S<L>, 256>},
  };
}

}  // namespace assay::quant::encode
