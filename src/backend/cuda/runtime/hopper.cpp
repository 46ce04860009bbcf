// See hopper.h.
#include "backend/cuda/runtime/hopper.h"

namespace assay::backend::cuda {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "asking for a GPU's properties");
  return value;
}

}  // namespace

void* find_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  if (status != cudaSuccess) cudaGetLastError();  // forgotten: it is an answer
  return status == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
}

int hopper_processors() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the GPU at work");
  if (attribute(cudaDevAttrComputeCapabilityMajor, device) != 9 ||
      attribute(cudaDevAttrComputeCapabilityMinor, device) != 0)
    return 0;
  return attribute(cudaDevAttrMultiProcessorCount, device);
}

HopperMemory::HopperMemory(bool wanted) {
  const int n_processors = wanted ? hopper_processors() : 0;
  if (n_processors == 0) return;
  view_.encode_map = find_map_encoder();
  if (view_.encode_map == nullptr) return;
  view_.n_processors = n_processors;
  scratch_ = DeviceBuffer(static_cast<size_t>(view_.n_processors) * kHopperScratchBytes, "sums of prefill");
  view_.scratch = scratch_.data();
  const auto n = static_cast<size_t>(view_.n_processors);
  parts_ = DeviceBuffer(n * kHopperPartsEach * kHopperPartBytes, "sums of parts of products");
  view_.parts = parts_.data();
  arrived_ = DeviceBuffer(n * sizeof(uint32_t), "counters of parts of products");
  check(cudaMemset(arrived_.data(), 0, arrived_.size()), "clearing counters");
  view_.arrived = arrived_.as<uint32_t>();
}

}  // namespace assay::backend::cuda
