// See assay/devices.h.
#include "assay/devices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "backend/cpu/linear/linear.h"
#include "backend/cuda/cuda.h"
#include "backend/vulkan/vulkan.h"
#include "base/aligned_buffer.h"
#include "base/processors.h"

namespace assay {

namespace {

std::string detail_of(const backend::vulkan::DeviceInfo& d) {
  std::string detail = fmt::format("Vulkan {}.{}, {}", d.version_major, d.version_minor, d.driver);
  if (d.is_software) detail += ", software: only used where it is named";
  if (!d.arithmetic.empty()) detail += fmt::format("; {}", d.arithmetic);
  if (!d.note.empty()) detail += fmt::format("; {}", d.note);
  return detail;
}

}  // namespace

DeviceList list_devices(bool probe) {
  DeviceList result;
  Device processor;
  processor.backend = "cpu";
  processor.name = processor_name();
  if (processor.name.empty()) processor.name = "processor";  // ARM's kernels tell no name
  processor.detail = fmt::format("{} cores, kernels", base::physical_cores());
  for (const Kernels set : backend::cpu::kernel_sets()) processor.detail += fmt::format(" {}", name(set));
  const int64_t page = sysconf(_SC_PAGESIZE);
  processor.memory_bytes = sysconf(_SC_PHYS_PAGES) * page;
  // Pages that cache files are free for whoever needs them.
  processor.memory_free_bytes =
      static_cast<int64_t>(std::min(base::memory_available_bytes(), static_cast<uint64_t>(processor.memory_bytes)));
  result.devices.push_back(std::move(processor));
  backend::cuda::Devices found = backend::cuda::find_devices();
  result.no_cuda = std::move(found.why_none);
  int number = 0;
  for (backend::cuda::DeviceInfo& d : found.list) {
    result.devices.push_back(
        {"cuda", std::move(d.name),
         fmt::format("{} multiprocessors, compute capability {}.{}", d.n_multiprocessors, d.major, d.minor),
         d.memory_bytes, d.free_bytes, number++});
  }
  backend::vulkan::Devices vulkan = backend::vulkan::find_devices(probe);
  result.no_vulkan = std::move(vulkan.why_none);
  number = 0;
  for (const backend::vulkan::DeviceInfo& d : vulkan.list) {
    result.devices.push_back({"vulkan", d.name, detail_of(d), d.memory_bytes, d.free_bytes, number++, d.refused});
  }
  return result;
}

void keep_shaders_in(const std::string& folder) { backend::vulkan::set_shader_folder(folder); }

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace assay
