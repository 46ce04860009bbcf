// See this_card.h.
#include "backend/cuda/runtime/this_card.h"

#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

Card this_card() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the GPU at work");
  const auto attribute = [device](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device), "asking for a GPU's properties");
    return value;
  };
  Card card;
  card.name = "this GPU";
  card.major = attribute(cudaDevAttrComputeCapabilityMajor);
  card.minor = attribute(cudaDevAttrComputeCapabilityMinor);
  card.n_multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  card.shared_bytes_max = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  card.code = code_on_device();
  card.has_tensor_maps = find_map_encoder() != nullptr;
  return card;
}

}  // namespace assay::backend::cuda
