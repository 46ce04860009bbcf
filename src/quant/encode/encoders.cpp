// Which encoder a processor gets, by its instruction set. See encoder.h.
#include <algorithm>

#include "quant/encode/encoder_sets.h"

namespace assay::quant::encode {

std::span<const EncoderSet> encoder_sets() noexcept { return sets_of_this_processor(); }

EncodeRow find_encoder(tensor::DType dtype) noexcept {
  EncodeRow found = nullptr;
  for (const EncoderSet& set : encoder_sets()) {
    if (!set.runs_here) continue;
    const auto it =
        std::find_if(set.encoders.begin(), set.encoders.end(), [&](const Encoder& e) { return e.dtype == dtype; });
    if (it != set.encoders.end()) found = it->encode;
  }
  return found;
}

}  // namespace assay::quant::encode
