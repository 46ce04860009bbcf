// How a device computes: samples of every float operation with known bits, when it is opened. What differs is emulated
// where num/num.glsl can, and what was chosen is then compared again, by the functions of num.glsl; a device where
// something still differs is refused.
//
//   the device's own        add  multiply  fma  divide  root     normal numbers | with subnormals      -> Arithmetic
//   as it was chosen        the same, integers to float, dots of bytes, halves, comparisons             -> refused or
//   not
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/vulkan/device/device.h"

namespace assay::backend::vulkan {

enum class ProbeOperation : uint32_t {  // as probe.comp has them
  add,
  multiply,
  fused,
  divide,
  root,
  integer_to_float,
  integer_dot,
  half_to_float,
  float_to_half,
  is_greater,  // these when a device is opened
  exponential,
  tanh,
  silu,
  gelu_tanh,
  sigmoid,
  relu_squared,
  softcap,  // made of them: by tests
  n_operations
};
inline constexpr auto kNProbed = static_cast<uint32_t>(ProbeOperation::exponential);
inline constexpr auto kNProbeOperations = static_cast<uint32_t>(ProbeOperation::n_operations);
std::string_view name(ProbeOperation operation) noexcept;

struct Operands {
  std::vector<uint32_t> a, b, c;
};
// n of each kind: bits of any float, near ones whose sums cancel, specials with each other; with_subnormals: else none,
// and no result is one.
Operands probe_operands(ProbeOperation operation, int n, bool with_subnormals, uint64_t seed);
// What the CPU makes of them; and the device. ours: by the functions of num.glsl; of the device's own there are the
// first five, half_to_float, and integer_dot where the device has an instruction for it.
std::vector<uint32_t> expected_bits(ProbeOperation operation, const Operands& operands);
std::vector<uint32_t> device_bits(Device& device, ProbeOperation operation, bool ours, const Operands& operands);
// Places where the bits differ; NaNs are one value.
int64_t n_different(ProbeOperation operation, std::span<const uint32_t> found, std::span<const uint32_t> expected);

// Outputs of eight small products by cooperative matrices that differ from the CPU's; where the device has none, by the
// loops that stand for them in tests.
int64_t n_wrong_of_matrices(Device& device);

struct Probe {
  Arithmetic arithmetic;
  std::string text;     // "fma by float64" or "all its own": for lists of devices
  std::string refused;  // which operation still differs; empty: none
};
// Leaves the device with the arithmetic that it found, and with its dots of bytes and matrices if they are right.
Probe probe(Device& device);

}  // namespace assay::backend::vulkan
