// Memory in pieces, copies, modules as drivers see them, and what is said where something is missing.
#include "backend/vulkan/device/device_test.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "assay/error.h"
#include "backend/vulkan/device/spirv.h"

namespace assay::backend::vulkan {
namespace {

TEST(VulkanFreeList, TakesFirstFitAndJoinsNeighbours) {
  FreeList list(1024);
  EXPECT_EQ(list.take(256), 0u);
  EXPECT_EQ(list.take(512), 256u);
  EXPECT_EQ(list.take(512), std::nullopt);
  EXPECT_EQ(list.take(256), 768u);
  EXPECT_EQ(list.n_parts(), 0u);
  list.give_back(256, 512);
  list.give_back(768, 256);
  EXPECT_EQ(list.n_parts(), 1u);
  list.give_back(0, 256);
  EXPECT_EQ(list.n_parts(), 1u);
  EXPECT_EQ(list.take(1024), 0u);
}

// In every module that is embedded each float operation that may not be contracted is marked, and nothing else is
// changed.
TEST(VulkanShaders, NoFloatOperationMayBeContracted) {
  for (const Shader& shader : all_shaders()) {
    for (const std::span<const uint32_t> module : {shader.plain, shader.with_float64, shader.with_integers}) {
      const std::vector<uint32_t> words = uncontracted(module);
      std::set<uint32_t> marked, floats;
      size_t n_added = 0;
      for (size_t i = 5; i < words.size(); i += words[i] >> 16) {
        ASSERT_GT(words[i] >> 16, 0u);
        const uint32_t opcode = words[i] & 0xFFFFu;
        if (opcode == 71 && words[i + 2] == 42) marked.insert(words[i + 1]), ++n_added;
        if (opcode == 127 || opcode == 129 || opcode == 131 || opcode == 133 || opcode == 136 || opcode == 142)
          floats.insert(words[i + 2]);  // 142: of a vector and a number
      }
      EXPECT_EQ(marked, floats) << shader.name;
      EXPECT_EQ(words.size(), module.size() + 3 * n_added) << shader.name;
    }
  }
  EXPECT_GT(all_shaders().size(), 8u);
}

TEST(VulkanInstance, SaysWhereThereIsNoLoader) {
  try {
    Instance("/nowhere/libvulkan.so");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::device);
    EXPECT_NE(std::string(e.what()).find("loader was not found"), std::string::npos) << e.what();
  }
}

// What a driver says comes through as an Error that says what to do.
TEST(VulkanInstance, SaysWhatADriverSays) {
  const auto said = [](VkResult result, const std::string& doing) {
    try {
      check(result, doing);
    } catch (const Error& e) {
      return std::pair(e.code, std::string(e.what()));
    }
    return std::pair(Errc::device, std::string());
  };
  const auto expect_says = [&](VkResult result, const std::string& doing, Errc code, const std::string& words) {
    const auto [found, text] = said(result, doing);
    EXPECT_EQ(found, code) << text;
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_NE(text.find(doing), std::string::npos) << text;
  };
  EXPECT_EQ(said(VK_SUCCESS, "waiting").second, "");
  expect_says(VK_ERROR_DEVICE_LOST, "waiting for a card", Errc::device, "smaller chunks (-ub)");
  expect_says(VK_ERROR_OUT_OF_DEVICE_MEMORY, "making commands", Errc::out_of_memory, "the device's memory is full");
  expect_says(VK_ERROR_OUT_OF_HOST_MEMORY, "making commands", Errc::out_of_memory, "the host's memory is full");
  expect_says(VK_ERROR_INCOMPATIBLE_DRIVER, "starting", Errc::device, "no driver was found");
  expect_says(VK_ERROR_INVALID_SHADER_NV, "compiling the shader norm", Errc::device, "error");
}

// Software is never chosen by itself, nor is anything where no driver is.
TEST(VulkanDevice, SoftwareIsOnlyUsedWhereItIsNamed) {
  const Devices devices = find_devices(false);
  const auto is_meant = [](const DeviceInfo& d) { return d.refused.empty() && !d.is_software; };
  const auto found = std::ranges::find_if(devices.list, is_meant);
  if (found != devices.list.end()) {
    EXPECT_EQ(default_device(), found - devices.list.begin());
    return;
  }
  try {
    default_device();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::device);
    const std::string words = devices.list.empty() ? devices.why_none : "--device names one";
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

TEST(VulkanDevice, CopiesAndRefuses) {
  ASSAY_REQUIRE_VULKAN();
  EXPECT_THROW(Device(std::make_unique<const Instance>(), 99), Error);
  for (const bool apart : {false, true}) {
    Device device(std::make_unique<const Instance>(), 0, apart);
    std::vector<uint32_t> values(3 << 20);
    std::iota(values.begin(), values.end(), 1u);
    const Buffer local = upload(device, values);
    EXPECT_EQ(local.address() % FreeList::kAlignment, 0u);
    const Buffer other = device.allocate(local.size(), Device::Place::host, "a test");
    device.copy(local, 4096, other, 8192, local.size() - 8192);
    device.finish();
    EXPECT_EQ(other.as<uint32_t>()[2048], values[1024]);
    EXPECT_EQ(download<uint32_t>(device, local, values.size()), values);
    if (apart) {
      EXPECT_EQ(local.mapped(), nullptr);
    }
  }
  Device device(std::make_unique<const Instance>(), 0);
  try {
    device.allocate(size_t{1} << 50, Device::Place::device, "a mountain");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::out_of_memory);
    EXPECT_NE(std::string(e.what()).find("a mountain: needs 1125899906842880 bytes"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace assay::backend::vulkan
