// The GPUs of this machine, and what their memory gives.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "backend/cuda/cuda.h"
#include "backend/cuda/runtime/device_memory.h"

namespace assay::backend::cuda {

Devices find_devices() {
  Devices devices;
  int n = 0;
  const cudaError_t status = cudaGetDeviceCount(&n);
  if (status != cudaSuccess || n == 0) {
    cudaGetLastError();
    devices.why_none = std::string("no CUDA device was found (") +
                       (status != cudaSuccess ? cudaGetErrorString(status) : "the driver names none") + ")";
    return devices;
  }
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, i), "asking for a GPU's properties");
    DeviceInfo info;
    info.name = properties.name;
    info.major = properties.major;
    info.minor = properties.minor;
    info.n_multiprocessors = properties.multiProcessorCount;
    size_t free_bytes = 0, total_bytes = 0;
    check(cudaSetDevice(i), "choosing the GPU");
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for a GPU's memory");
    info.memory_bytes = static_cast<int64_t>(total_bytes);
    info.free_bytes = static_cast<int64_t>(free_bytes);
    devices.list.push_back(std::move(info));
  }
  check(cudaSetDevice(0), "choosing the GPU");
  return devices;
}

double measure_device_bandwidth(int device) {
  check(cudaSetDevice(device), "choosing the GPU");
  constexpr size_t kBytes = size_t{1} << 30;
  constexpr int kPasses = 8;
  const DeviceBuffer from(kBytes, "the bandwidth's measurement"), to(kBytes, "the bandwidth's measurement");
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "making an event");
  check(cudaEventCreate(&end), "making an event");
  float best_ms = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    check(cudaEventRecord(begin), "timing a copy");
    check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice), "timing a copy");
    check(cudaEventRecord(end), "timing a copy");
    check(cudaEventSynchronize(end), "timing a copy");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "timing a copy");
    best_ms = pass == 0 ? ms : std::min(best_ms, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 2.0 * static_cast<double>(kBytes) * 1e3 / best_ms;
}

}  // namespace assay::backend::cuda
