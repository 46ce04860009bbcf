// The devices that a model can run on, as this machine has them now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

struct Device {
  std::string backend;  // "cpu", "cuda" or "vulkan"
  std::string name;
  std::string detail;             // e.g. "132 multiprocessors, compute capability 9.0"
  int64_t memory_bytes = 0;       // 0: not known
  int64_t memory_free_bytes = 0;  // of the processor: what could be taken without swapping
  int number = 0;                 // of its backend's devices: ContextOptions::devices
  std::string refused = {};       // why nothing can run on it; empty: it can
};

struct DeviceList {
  std::vector<Device> devices;  // the processor first, then the GPUs
  std::string no_cuda;          // why there is no CUDA device among them; empty where there is one
  std::string no_vulkan;        // the same of Vulkan; empty where there is one, be it a refused one
};

// probe: Vulkan devices are opened and asked how they compute, which takes a moment; their detail and what they are
// refused for then say so.
DeviceList list_devices(bool probe = false);
// Of the whole process, ahead of the first device: the folder in which drivers' compilations of shaders are kept for
// later runs (Vulkan). Empty, as at first: they are not kept.
void keep_shaders_in(const std::string& folder);
std::string processor_name();  // as the operating system calls it; empty where it does not say

}  // namespace assay
