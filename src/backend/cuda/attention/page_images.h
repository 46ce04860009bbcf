// Pages of the cache on their way to the host and back, through page-locked memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/runtime/device_memory.h"

namespace assay::backend::cuda {

class PageImages {
 public:
  explicit PageImages(const KvCache& cache) : cache_(cache) {}

  // Behind what is queued on the stream. read: has ended when it returns; write: the image is no longer needed then.
  void read(int32_t page, std::span<std::byte> image, cudaStream_t stream);
  void write(std::span<const std::byte> image, int32_t page, cudaStream_t stream);

 private:
  struct Place {
    PinnedBuffer memory;
    Event read_by_device;
  };
  // One that the device does not read, taken by turns: one is filled while the other one leaves.
  Place& next();

  const KvCache& cache_;
  std::array<Place, 2> places_;
  size_t i_place_ = 0;
};

}  // namespace assay::backend::cuda
