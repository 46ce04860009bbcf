// The devices that a model can run on, as this machine has them now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

struct Device {
  std::string backend;            // "cpu" or "cuda"
  std::string name;
  std::string detail;             // e.g. "132 multiprocessors, compute capability 9.0"
  int64_t memory_bytes = 0;       // 0: not known
  int64_t memory_free_bytes = 0;
};

struct DeviceList {
  std::vector<Device> devices;  // the processor first, then the GPUs
  std::string no_cuda;          // why there is no GPU among them; empty where there is one
};

DeviceList list_devices();
std::string processor_name();  // as the operating system calls it; empty where it does not say

}  // namespace assay
