// The functions of num/num.glsl against the CPU's by bits, as the device needs them and in every other way that a
// device may: emulations that this device does not need are run all the same.
#include "backend/vulkan/probe/probe.h"

#include <span>
#include <string>
#include <vector>

#include "backend/vulkan/device/device_test.h"

namespace assay::backend::vulkan {
namespace {

constexpr int kMany = 1 << 16;

void expect_bits(Device& device, std::span<const ProbeOperation> operations, const std::string& how) {
  for (const ProbeOperation operation : operations) {
    const Operands operands = probe_operands(operation, kMany, true, 2);
    const std::vector<uint32_t> found = device_bits(device, operation, true, operands);
    EXPECT_EQ(n_different(operation, found, expected_bits(operation, operands)), 0) << name(operation) << ", " << how;
  }
}

std::vector<ProbeOperation> operations_before(ProbeOperation end) {
  std::vector<ProbeOperation> operations;
  for (uint32_t i = 0; i < static_cast<uint32_t>(end); ++i) operations.push_back(static_cast<ProbeOperation>(i));
  return operations;
}

TEST(VulkanProbe, WhatItChoosesHasTheBitsOfTheCpu) {
  ASSAY_REQUIRE_VULKAN();
  Device device(std::make_unique<const Instance>(), 0);
  const Probe found = probe(device);
  ASSERT_EQ(found.refused, "");
  EXPECT_EQ(device.arithmetic(), found.arithmetic);
  std::printf("%s, %s: %s\n", device.facts().name.c_str(), device.facts().driver.c_str(), found.text.c_str());
  expect_bits(device, operations_before(ProbeOperation::n_operations), found.text);
}

// Everything in integers, exp for what is made of these operations; and the device's own with integers where a
// subnormal may be, of those that it rounds right.
TEST(VulkanProbe, EveryEmulationHasTheBitsOfTheCpu) {
  ASSAY_REQUIRE_VULKAN();
  Device device(std::make_unique<const Instance>(), 0);
  const Arithmetic found = probe(device).arithmetic;
  device.set_arithmetic({Arithmetic::Fused::by_integers, true, true, true, true});
  expect_bits(device, operations_before(ProbeOperation::tanh), "all by integers");
  device.set_arithmetic({Arithmetic::Fused::own, true, found.own_quotient, found.own_root, found.own_halves});
  std::vector<ProbeOperation> own = {ProbeOperation::add, ProbeOperation::multiply, ProbeOperation::divide,
                                     ProbeOperation::root, ProbeOperation::is_greater};
  if (found.fused == Arithmetic::Fused::own) own.push_back(ProbeOperation::fused);
  expect_bits(device, own, "subnormals by integers");
}

TEST(VulkanProbe, MatricesHaveTheBitsOfTheCpu) {
  ASSAY_REQUIRE_VULKAN();
  Device device(std::make_unique<const Instance>(), 0);
  probe(device);
  for (const uint32_t depth : depths_of_matrices(device)) {
    device.set_matrix_depth(depth);
    EXPECT_EQ(n_wrong_of_matrices(device), 0) << depth;
  }
}

// What a device without a fused multiply-add would give without the emulation is found out.
TEST(VulkanProbe, SeesAWrongOperation) {
  ASSAY_REQUIRE_VULKAN();
  const Operands operands = probe_operands(ProbeOperation::fused, 1000, true, 3);
  std::vector<uint32_t> bits = expected_bits(ProbeOperation::fused, operands);
  EXPECT_EQ(n_different(ProbeOperation::fused, bits, bits), 0);
  std::vector<uint32_t> twice_rounded;
  for (size_t i = 0; i < operands.a.size(); ++i) {
    twice_rounded.push_back(
        std::bit_cast<uint32_t>(std::bit_cast<float>(operands.a[i]) * std::bit_cast<float>(operands.b[i]) +
                                std::bit_cast<float>(operands.c[i])));
  }
  EXPECT_GT(n_different(ProbeOperation::fused, twice_rounded, bits), 50);
}

}  // namespace
}  // namespace assay::backend::vulkan
