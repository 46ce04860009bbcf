// See assay/devices.h.
#include "assay/devices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "backend/cpu/linear/linear.h"
#include "backend/cuda/cuda.h"
#include "base/processors.h"

namespace assay {

DeviceList list_devices() {
  DeviceList result;
  Device processor;
  processor.backend = "cpu";
  processor.name = processor_name();
  if (processor.name.empty()) processor.name = "processor";  // ARM's kernels tell no name
  processor.detail = fmt::format("{} cores, kernels", base::physical_cores());
  for (const backend::cpu::KernelSet set : backend::cpu::kernel_sets()) processor.detail += fmt::format(" {}", backend::cpu::name(set));
  const int64_t page = sysconf(_SC_PAGESIZE);
  processor.memory_bytes = sysconf(_SC_PHYS_PAGES) * page;
  processor.memory_free_bytes = sysconf(_SC_AVPHYS_PAGES) * page;
  result.devices.push_back(std::move(processor));
  backend::cuda::Devices found = backend::cuda::find_devices();
  result.no_cuda = std::move(found.why_none);
  for (backend::cuda::DeviceInfo& d : found.list) {
    result.devices.push_back({"cuda", std::move(d.name),
                              fmt::format("{} multiprocessors, compute capability {}.{}", d.n_multiprocessors, d.major, d.minor),
                              d.memory_bytes, d.free_bytes});
  }
  return result;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace assay
