// For tests: a device to run on, named first or else software, and the comparison of floats by their bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "backend/vulkan/runtime/open_device.h"
#include "backend/vulkan/vulkan.h"

// In a test body: skips, and says why, where there is no device.
#define ASSAY_REQUIRE_VULKAN()                                                                         \
  do {                                                                                                 \
    const assay::backend::vulkan::Devices found_devices = assay::backend::vulkan::find_devices(false); \
    if (found_devices.list.empty()) GTEST_SKIP() << found_devices.why_none;                            \
  } while (false)

namespace assay::backend::vulkan {

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

// That its cooperative matrices have; of a device without them those of the loops that stand for them.
inline std::vector<uint32_t> depths_of_matrices(const Device& device) {
  if (device.facts().matrix_depth > 0) return {device.facts().matrix_depth};
  return {16, 32};
}

template <class T>
Buffer upload(Device& device, const std::vector<T>& values) {
  Buffer buffer = device.allocate(values.size() * sizeof(T), Device::Place::device, "a test");
  device.write(buffer, 0, std::as_bytes(std::span(values)));
  return buffer;
}

template <class T>
std::vector<T> download(Device& device, const Buffer& buffer, size_t n) {
  std::vector<T> values(n);
  device.finish();
  device.read(buffer, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

// Memory for n floats that holds what no kernel leaves there.
inline Buffer poisoned(Device& device, size_t n) { return upload(device, std::vector<uint32_t>(n, 0xA5A5A5A5u)); }

}  // namespace assay::backend::vulkan
