// The sets of x86-64.
#include "base/x86_features.h"
#include "quant/encode/encoder_sets.h"

namespace assay::quant::encode {

std::span<const EncoderSet> sets_of_this_processor() noexcept {
  const bool avx2 = base::has_avx2_and_f16c(), avx512 = avx2 && __builtin_cpu_supports("avx512f");
  static const EncoderSet kSets[] = {
      {"plain", true, plain_encoders()}, {"avx2", avx2, avx2_encoders()}, {"avx512", avx512, avx512_encoders()}};
  return kSets;
}

}  // namespace assay::quant::encode
