// The encoders as compiled for AVX-512. See encoder_sets.h.
#include "quant/encode/encoder_sets.h"
#include "quant/encode/encoder_table.h"
#include "quant/encode/lanes_avx512.h"

namespace assay::quant::encode {
namespace {

constexpr auto kEncoders = make_encoders<Avx512Lanes>();

}  // namespace

std::span<const Encoder> avx512_encoders() noexcept { return kEncoders; }

}  // namespace assay::quant::encode
