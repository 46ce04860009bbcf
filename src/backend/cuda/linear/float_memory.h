// The memory that products of float weights for many tokens want (float_tiles.h), taken once.
#pragma once

#include <cstddef>
#include <span>

#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/tiles/float_tiles.h"

namespace assay::backend::cuda {

// Matrices that are multiplied together: their rows, of as many columns. No rows: only the activations are packed.
struct FloatNeed {
  int64_t rows = 0, cols = 0;
};

class FloatMemory {
 public:
  FloatMemory() = default;
  // Of the current device; nothing where it has not the instructions, or where a batch is too small.
  FloatMemory(std::span<const FloatNeed> needs, int64_t n_tokens_max);

  const FloatScratch& view() const noexcept { return view_; }
  size_t bytes() const noexcept { return w_.size() + x_.size() + sums_.size(); }

 private:
  DeviceBuffer w_, x_, sums_;
  FloatScratch view_;
};

}  // namespace assay::backend::cuda
