// The weights of a plan in the device's memory, copied once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/runtime/device_memory.h"
#include "ops/linear/linear.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

class DeviceWeights {
 public:
  // options.weights_as_f32: every matrix stays as the file has it; else formats with fast kernels are cut into parts.
  // column_linears: ops, whose columns (ops::Linear) are copied too, n rows as one of all columns where they are an
  // n-th of the columns (decode.h).
  DeviceWeights(const ops::Plan& plan, const ops::ExecutorOptions& options, std::span<const int32_t> column_linears,
                cudaStream_t stream);

  const Matrix& matrix(ops::WeightId id) const noexcept { return matrices_[static_cast<size_t>(id)]; }
  const float* small(ops::WeightId id) const noexcept {
    return small_[static_cast<size_t>(id)];
  }  // norms and biases as f32
  size_t bytes() const noexcept { return memory_.size(); }

 private:
  DeviceBuffer memory_;
  std::vector<Matrix> matrices_;
  std::vector<const float*> small_;
};

}  // namespace assay::backend::cuda
