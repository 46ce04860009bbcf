// y[i] = x[t] for the i-th token t whose logits are wanted: the rows that go on to the output head. Bits: copied.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace assay::ops {

// outputs: one flag a row of x. y has as many rows as flags are set. Returns that number.
int64_t select_outputs_ref(tensor::ConstMat x, std::span<const uint8_t> outputs, tensor::Mat y) noexcept;

}  // namespace assay::ops
