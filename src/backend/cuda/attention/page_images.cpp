// See page_images.h.
#include "backend/cuda/attention/page_images.h"

#include <algorithm>

namespace assay::backend::cuda {
namespace {

constexpr size_t kPlacesBytes = 64 << 20, kPlacesMin = 2, kPlacesMax = 16;

}  // namespace

PageImages::PageImages(KvCache& cache, cudaStream_t runs)
    : cache_(cache), runs_(runs),
      n_places_(
          static_cast<int>(std::clamp(kPlacesBytes / std::max<size_t>(cache.page_bytes(), 1), kPlacesMin, kPlacesMax))),
      copies_(cache.own_tables(), *this) {
  check(cudaGetDevice(&device_), "asking for the GPU");
}

int PageImages::mark() {
  if (marks_.empty()) marks_ = std::vector<Event>(kMarks);
  last_mark_ = (last_mark_ + 1) % kMarks;
  marks_[static_cast<size_t>(last_mark_)].record(runs_);
  return last_mark_;
}

void PageImages::begin() {
  check(cudaSetDevice(device_), "choosing the GPU");
  if (!stream_) stream_.emplace();
  if (places_.empty()) places_ = std::vector<Place>(static_cast<size_t>(n_places_));
  for (Place& place : places_) {
    if (place.memory.size() == 0) place.memory = PinnedBuffer(cache_.page_bytes(), "a page of the KV cache on its way");
  }
}

void PageImages::start_read(const pages::CachePage& page, int place, int mark) {
  marks_[static_cast<size_t>(mark)].hold(stream_->get());
  cache_.copy_page(this->place(place), page, stream_->get());
  places_[static_cast<size_t>(place)].over.record(stream_->get());
}

void PageImages::start_write(int place, const pages::CachePage& page, int mark) {
  marks_[static_cast<size_t>(mark)].hold(stream_->get());
  cache_.copy_page(page, this->place(place), stream_->get());
  places_[static_cast<size_t>(place)].over.record(stream_->get());
}

}  // namespace assay::backend::cuda
