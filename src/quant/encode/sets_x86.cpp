// The sets of x86-64.
#include "base/x86_features.h"
#include "quant/encode/encoder_sets.h"

namespace assay::quant::encode {

std::span<const EncoderSet> sets_of_this_processor() noexcept {
  static const EncoderSet kSets[] = {{"plain", true, plain_encoders()}, {"avx2", base::has_avx2_and_f16c(), avx2_encoders()}};
  return kSets;
}

}  // namespace assay::quant::encode
