// For tests: a matrix on the device.
#pragma once

#include <vector>

#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/device_weights.h"

namespace assay::backend::cuda {

// A matrix as DeviceWeights would lay it.
struct Uploaded {
  DeviceBuffer memory;
  Matrix matrix;
};
inline Uploaded lay(tensor::DType dtype, int64_t rows, int64_t cols, const std::vector<std::byte>& bytes, bool whole) {
  Uploaded u;
  u.memory = DeviceBuffer(bytes.size() + 1024, "a test");
  check(cudaMemset(u.memory.data(), 0, u.memory.size()),
        "clearing test memory");  // a word with the last scale of a part reaches past it
  const PartBytes parts = part_bytes(dtype, whole);
  const auto n_blocks = static_cast<int64_t>(bytes.size()) / tensor::traits(dtype).block_bytes;
  u.matrix = {dtype, rows, cols, {}};
  u.matrix.parts.n = parts.n;
  size_t at = 0;
  for (int p = 0; p < parts.n; ++p) {
    u.matrix.parts.bytes[p] = parts.bytes[p];
    u.matrix.parts.base[p] = u.memory.as<uint8_t>() + at;
    at += (static_cast<size_t>(n_blocks * parts.bytes[p]) + 255) / 256 * 256;
  }
  const DeviceBuffer file = upload(bytes);
  cut_blocks(file.as<uint8_t>(), n_blocks, u.matrix.parts, nullptr);
  check(cudaDeviceSynchronize(), "cutting blocks");
  return u;
}

}  // namespace assay::backend::cuda
