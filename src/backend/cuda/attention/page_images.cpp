// See page_images.h.
#include "backend/cuda/attention/page_images.h"

#include <cstring>

namespace assay::backend::cuda {

PageImages::Place& PageImages::next() {
  i_place_ = (i_place_ + 1) % places_.size();
  Place& place = places_[i_place_];
  if (place.memory.size() == 0) place.memory = PinnedBuffer(cache_.page_bytes(), "a page of the KV cache on its way");
  place.read_by_device.wait();
  return place;
}

void PageImages::read(int32_t page, std::span<std::byte> image, cudaStream_t stream) {
  if (image.empty()) return;
  const Place& place = next();
  cache_.copy_page(place.memory.data(), page, cudaMemcpyDeviceToHost, stream);
  check(cudaStreamSynchronize(stream), "reading a page of the KV cache");
  std::memcpy(image.data(), place.memory.data(), image.size());
}

void PageImages::write(std::span<const std::byte> image, int32_t page, cudaStream_t stream) {
  if (image.empty()) return;
  Place& place = next();
  std::memcpy(place.memory.data(), image.data(), image.size());
  cache_.copy_page(page, place.memory.data(), cudaMemcpyHostToDevice, stream);
  place.read_by_device.record(stream);
}

}  // namespace assay::backend::cuda
