// The encoders as compiled for AVX2. See encoder_sets.h.
#include "quant/encode/encoder_sets.h"
#include "quant/encode/encoder_table.h"
#include "quant/encode/lanes_avx2.h"

namespace assay::quant::encode {
namespace {

constexpr auto kEncoders = make_encoders<Avx2Lanes>();

}  // namespace

std::span<const Encoder> avx2_encoders() noexcept { return kEncoders; }

}  // namespace assay::quant::encode
