// Pages of the cache on their way to the host and back, on a stream of their own, through page-locked memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/runtime/device_memory.h"
#include "pages/page_copies.h"

namespace assay::backend::cuda {

class PageImages final : public pages::PageMover {
 public:
  // runs: the stream that the cache is read and written on. The device is the calling thread's.
  PageImages(KvCache& cache, cudaStream_t runs);

  pages::PageCopies& copies() noexcept { return copies_; }

  int n_places() const noexcept override { return n_places_; }
  std::byte* place(int i) noexcept override { return places_[static_cast<size_t>(i)].memory.data(); }
  int mark() override;
  void begin() override;
  void start_read(const pages::CachePage& page, int place, int mark) override;
  void start_write(int place, const pages::CachePage& page, int mark) override;
  bool is_over(int place) override { return places_[static_cast<size_t>(place)].over.is_over(); }
  void wait(int place) override { places_[static_cast<size_t>(place)].over.wait(); }

 private:
  struct Place {
    PinnedBuffer memory;
    Event over{Event::Wait::asleep};
  };
  static constexpr int kMarks = 8;

  KvCache& cache_;
  const cudaStream_t runs_;
  const int n_places_;
  int device_ = 0;
  // Made when something is copied for the first time.
  std::optional<Stream> stream_;
  std::vector<Place> places_;
  std::vector<Event> marks_;  // by turns: one that is taken again comes behind more than was asked for
  int last_mark_ = 0;
  pages::PageCopies copies_;  // the last: it ends first
};

}  // namespace assay::backend::cuda
