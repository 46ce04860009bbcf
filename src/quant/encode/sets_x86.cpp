// The sets of x86-64.
#include "quant/encode/encoder_sets.h"

namespace assay::quant::encode {

std::span<const EncoderSet> sets_of_this_processor() noexcept {
  static const EncoderSet kSets[] = {{"plain", true, plain_encoders()},
                                     {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"), avx2_encoders()}};
  return kSets;
}

}  // namespace assay::quant::encode
