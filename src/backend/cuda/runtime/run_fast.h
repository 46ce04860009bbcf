// Queues the products of mode fast of a group (run_group.h) by their rows of kernels/float_table.h, and decodes
// quantised weights where they want it. No choice here changes a bit (fast_linear.h, fast_blocks.h).
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/kernels/unpack_table.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/runtime/device_state.h"
#include "backend/cuda/runtime/queue.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {

struct FastRun {
  tensor::DType type = tensor::DType::F16;  // in which all are multiplied (fast_type)
  const float* x = nullptr;                 // [n_tokens, cols]
  int64_t cols = 0, n_tokens = 0;
  bool in_tiles = false;         // by fast_tiles, from the state's memory for rounded rows
  bool halves_are_made = false;  // they are there, and x may not be
};
struct FastLinear {
  LinearTask task;
  const FloatRow* row = nullptr;
  UnpackKernel unpacker = UnpackKernel::eights;  // of a matrix that is decoded
};
void run_fast_linears(const DeviceState& state, const FastRun& run, std::span<const FastLinear> linears,
                      const Queue& queue);

}  // namespace assay::backend::cuda
