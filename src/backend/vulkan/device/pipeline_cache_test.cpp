// The file of compiled shaders: what comes back, what is not used and why, and that a device leaves one behind.
#include "backend/vulkan/device/pipeline_cache.h"

#include <fstream>
#include <functional>
#include <string>

#include "backend/vulkan/device/device_test.h"
#include "backend/vulkan/probe/probe.h"
#include "support/temp_folder.h"

namespace assay::backend::vulkan {
namespace {

// The folder of compiled shaders, until the end of a test.
class ShaderFolder {
 public:
  explicit ShaderFolder(const std::filesystem::path& path) { set_shader_folder(path.string()); }
  ~ShaderFolder() { set_shader_folder(""); }
  ShaderFolder(const ShaderFolder&) = delete;
  ShaderFolder& operator=(const ShaderFolder&) = delete;
};

void change_byte(const std::filesystem::path& path, std::streamoff at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

TEST(VulkanPipelineCache, IsUsedByTheSameDeviceAndDriverAlone) {
  const test::TempFolder folder;
  const std::filesystem::path path = folder / "some/where/of.pipelines";
  Facts device;
  device.uuid[3] = 7, device.driver_version = 12, device.vendor = 0x10DE;
  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31);
  std::string why = "old";
  EXPECT_TRUE(read_pipeline_cache(path, device, why).empty());
  EXPECT_EQ(why, "");
  write_pipeline_cache(path, device, bytes);
  EXPECT_EQ(read_pipeline_cache(path, device, why), bytes);
  EXPECT_EQ(why, "");

  const auto expect_refused = [&](const Facts& by, const std::string& words) {
    EXPECT_TRUE(read_pipeline_cache(path, by, why).empty());
    EXPECT_NE(why.find(words), std::string::npos) << why;
    EXPECT_NE(why.find(path.string()), std::string::npos) << why;
  };
  const auto other = [&](const std::function<void(Facts&)>& change) {
    Facts facts = device;
    change(facts);
    return facts;
  };
  expect_refused(other([](Facts& f) { f.driver_version = 13; }), "another device's or driver's");
  expect_refused(other([](Facts& f) { f.uuid[0] = 1; }), "another device's or driver's");
  expect_refused(other([](Facts& f) { f.cache_uuid[15] = 1; }), "another device's or driver's");
  change_byte(path, 500);
  expect_refused(device, "damaged");
  write_pipeline_cache(path, device, bytes);
  std::filesystem::resize_file(path, 700);
  expect_refused(device, "damaged");
  std::filesystem::resize_file(path, 10);
  expect_refused(device, "size");
}

TEST(VulkanPipelineCache, LiesWhereItIsNamedByDeviceAndDriver) {
  Facts device;
  device.driver_version = 77;
  EXPECT_TRUE(pipeline_cache_path(device).empty());
  const ShaderFolder folder("/elsewhere");
  EXPECT_EQ(pipeline_cache_path(device), "/elsewhere/" + std::string(32, '0') + "-77.pipelines");
}

TEST(VulkanPipelineCache, ADeviceLeavesItAndADamagedOneIsMadeAnew) {
  ASSAY_REQUIRE_VULKAN();
  const test::TempFolder folder;
  const ShaderFolder kept(folder / "made" / "when needed");
  const auto open_and_probe = [] {
    Device device(std::make_unique<const Instance>(), 0);
    EXPECT_EQ(probe(device).refused, "");
    return std::pair(pipeline_cache_path(device.facts()), device.cache_note());
  };
  const auto [path, note] = open_and_probe();
  EXPECT_EQ(note, "");
  ASSERT_TRUE(std::filesystem::is_regular_file(path)) << path;
  EXPECT_EQ(open_and_probe().second, "");
  change_byte(path, 80);
  EXPECT_NE(open_and_probe().second.find("damaged"), std::string::npos);
  EXPECT_EQ(open_and_probe().second, "");  // it was made anew
}

// Where nothing can be written a device works all the same.
TEST(VulkanPipelineCache, AFolderThatCannotBeMadeIsNoError) {
  ASSAY_REQUIRE_VULKAN();
  const test::TempFolder folder;
  std::ofstream(folder / "file") << "in the way";
  const ShaderFolder kept(folder / "file");
  Device device(std::make_unique<const Instance>(), 0);
  EXPECT_EQ(probe(device).refused, "");
  device.keep_pipelines();
  EXPECT_NE(device.cache_note().find("could not be kept"), std::string::npos) << device.cache_note();
}

}  // namespace
}  // namespace assay::backend::vulkan
