// For tests: vectors to and from the device, and the comparison of floats by their bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/device_memory.h"
#include "ops/attention/attention.h"

// In a test body: skips, and says why, where there is no GPU.
#define ASSAY_REQUIRE_GPU()                                                                   \
  do {                                                                                        \
    const assay::backend::cuda::Devices found_devices = assay::backend::cuda::find_devices(); \
    if (found_devices.list.empty()) GTEST_SKIP() << found_devices.why_none;                   \
  } while (false)

namespace assay::backend::cuda {

template <class T>
DeviceBuffer upload(const std::vector<T>& values) {
  DeviceBuffer buffer(values.size() * sizeof(T), "a test");
  check(cudaMemcpy(buffer.data(), values.data(), buffer.size(), cudaMemcpyHostToDevice), "sending test data");
  return buffer;
}

template <class T>
std::vector<T> download(const void* device, size_t n) {
  std::vector<T> values(n);
  check(cudaDeviceSynchronize(), "running a test's kernels");
  check(cudaMemcpy(values.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost), "reading test data");
  return values;
}

// Memory for n floats that holds what no kernel leaves there.
inline DeviceBuffer poisoned(size_t n) {
  DeviceBuffer buffer(n * sizeof(float), "a test");
  check(cudaMemset(buffer.data(), 0xA5, buffer.size()), "poisoning test memory");
  return buffer;
}

// Heads as the cache gives them back.
inline std::vector<float> as_cached(ops::CacheType type, const std::vector<float>& x, int64_t head_dim) {
  std::vector<float> back(x.size());
  std::vector<std::byte> row(static_cast<size_t>(ops::cache_row_bytes(type, head_dim)));
  for (size_t i = 0; i < x.size(); i += static_cast<size_t>(head_dim)) {
    ops::cache_encode_ref(type, x.data() + i, head_dim, row.data());
    ops::cache_decode_ref(type, row.data(), head_dim, back.data() + i);
  }
  return back;
}

inline bool same_bits(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline ::testing::AssertionResult same_floats(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size())
    return ::testing::AssertionFailure() << found.size() << " values, not " << expected.size();
  size_t n_wrong = 0, first = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (same_bits(found[i], expected[i])) continue;
    if (n_wrong++ == 0) first = i;
  }
  if (n_wrong == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << n_wrong << " of " << found.size() << " differ, the first at " << first << ": "
                                       << std::hexfloat << found[first] << ", expected " << expected[first];
}

}  // namespace assay::backend::cuda
