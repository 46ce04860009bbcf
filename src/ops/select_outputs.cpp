// Reference of select_outputs.h.
#include "ops/select_outputs.h"

#include <algorithm>

namespace assay::ops {

int64_t select_outputs_ref(tensor::ConstMat x, std::span<const uint8_t> outputs, tensor::Mat y) noexcept {
  int64_t n = 0;
  for (int64_t t = 0; t < x.rows; ++t) {
    if (outputs[static_cast<size_t>(t)] == 0) continue;
    std::copy_n(x.row(t), x.cols, y.row(n));
    ++n;
  }
  return n;
}

}  // namespace assay::ops
