// How many GPUs the CUDA backend has: where Vulkan is built too, its devices are listed beside them.
#pragma once

#include <algorithm>

#include "assay/devices.h"

namespace assay::test {

inline int n_cuda_gpus() {
  const DeviceList list = list_devices();
  return static_cast<int>(
      std::count_if(list.devices.begin(), list.devices.end(), [](const Device& d) { return d.backend == "cuda"; }));
}

}  // namespace assay::test
