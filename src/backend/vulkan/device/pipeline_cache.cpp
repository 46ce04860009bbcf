// See pipeline_cache.h.
#include "backend/vulkan/device/pipeline_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <mutex>
#include <system_error>

#include "backend/vulkan/vulkan.h"
#include "base/output_file.h"

namespace assay::backend::vulkan {
namespace {

constexpr uint64_t kCacheBytesMax = uint64_t{256} << 20;  // beyond that a file is not ours

// Ahead of the driver's bytes. Drivers check what they are given, but not all of them against a damaged disk.
struct CacheHead {
  std::array<char, 8> magic = {'a', 's', 's', 'a', 'y', 'v', 'p', '1'};
  std::array<uint8_t, VK_UUID_SIZE> device = {}, format = {};
  uint32_t driver = 0, vendor = 0, kind = 0, zero = 0;
  uint64_t n_bytes = 0, hash = 0;
};
static_assert(sizeof(CacheHead) == 72);

CacheHead head_of(const Facts& device, std::span<const std::byte> bytes) noexcept {
  CacheHead head;
  head.device = device.uuid, head.format = device.cache_uuid;
  head.driver = device.driver_version, head.vendor = device.vendor, head.kind = device.kind;
  head.n_bytes = bytes.size(), head.hash = XXH3_64bits(bytes.data(), bytes.size());
  return head;
}

std::mutex folder_mutex;
std::filesystem::path& shader_folder() {
  static std::filesystem::path folder;
  return folder;
}

std::string hex(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t b : bytes) text += kDigits[b >> 4], text += kDigits[b & 15];
  return text;
}

}  // namespace

void set_shader_folder(const std::string& folder) {
  const std::lock_guard lock(folder_mutex);
  shader_folder() = folder;
}

std::filesystem::path pipeline_cache_path(const Facts& device) {
  const std::lock_guard lock(folder_mutex);
  if (shader_folder().empty()) return {};
  return shader_folder() / (hex(device.uuid) + "-" + std::to_string(device.driver_version) + ".pipelines");
}

std::vector<std::byte> read_pipeline_cache(const std::filesystem::path& path, const Facts& device,
                                           std::string& why_not) {
  why_not.clear();
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return {};
  const auto refuse = [&](const std::string& why) {
    why_not = "compiled shaders in " + path.string() + " are not used: " + why + "; they are compiled anew";
    return std::vector<std::byte>();
  };
  const uint64_t n_file = std::filesystem::file_size(path, error);
  CacheHead head;
  if (error || n_file < sizeof(head) || n_file > kCacheBytesMax)
    return refuse("the file's size is not one of such a file");
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(&head), sizeof(head));
  std::vector<std::byte> bytes(static_cast<size_t>(n_file - sizeof(head)));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) return refuse("the file cannot be read");
  const CacheHead expected = head_of(device, bytes);
  if (std::memcmp(&head.hash, &expected.hash, sizeof(head.hash)) != 0 || head.n_bytes != expected.n_bytes ||
      head.magic != expected.magic)
    return refuse("the file is damaged");
  if (std::memcmp(&head, &expected, sizeof(head)) != 0) return refuse("they are another device's or driver's");
  return bytes;
}

void write_pipeline_cache(const std::filesystem::path& path, const Facts& device, std::span<const std::byte> bytes) {
  if (path.empty() || bytes.size() > kCacheBytesMax - sizeof(CacheHead)) return;
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);  // what is wrong with it, the file says
  const CacheHead head = head_of(device, bytes);
  base::OutputFile file(path, sizeof(head) + bytes.size());
  file.write(std::as_bytes(std::span(&head, 1)));
  file.write(bytes);
  file.close();
  file.commit();
}

}  // namespace assay::backend::vulkan
