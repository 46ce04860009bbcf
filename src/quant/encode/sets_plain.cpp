// Processors without a set of their own.
#include "quant/encode/encoder_sets.h"

namespace assay::quant::encode {

std::span<const EncoderSet> sets_of_this_processor() noexcept {
  static const EncoderSet kSets[] = {{"plain", true, plain_encoders()}};
  return kSets;
}

}  // namespace assay::quant::encode
