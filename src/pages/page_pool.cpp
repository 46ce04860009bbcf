// See page_pool.h.
#include "pages/page_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace assay::pages {

PagePool::PagePool(int64_t n_pages)
    : n_users_(static_cast<size_t>(n_pages)), n_pins_(n_users_.size()), ready_((n_users_.size() + 63) / 64),
      n_free_(n_pages) {
  for (size_t page = 0; page < n_users_.size(); ++page) ready_[page / 64] |= uint64_t{1} << page % 64;
}

int32_t PagePool::take() noexcept {
  assert(n_ready() > 0);
  while (ready_[first_word_] == 0) ++first_word_;
  const size_t page = first_word_ * 64 + static_cast<size_t>(std::countr_zero(ready_[first_word_]));
  ready_[first_word_] &= ready_[first_word_] - 1;
  n_users_[page] = 1;
  --n_free_;
  return static_cast<int32_t>(page);
}

void PagePool::share(int32_t page) noexcept {
  assert(n_users_[static_cast<size_t>(page)] > 0);
  ++n_users_[static_cast<size_t>(page)];
}

void PagePool::leave(int32_t page) noexcept {
  const auto i = static_cast<size_t>(page);
  assert(n_users_[i] > 0);
  if (--n_users_[i] > 0) return;
  ++n_free_;
  if (n_pins_[i] > 0) {
    ++n_pinned_free_;
  } else {
    put_in(page);
  }
}

void PagePool::pin(int32_t page) noexcept {
  const auto i = static_cast<size_t>(page);
  if (n_pins_[i]++ > 0 || n_users_[i] > 0) return;
  ready_[i / 64] &= ~(uint64_t{1} << i % 64);
  ++n_pinned_free_;
}

void PagePool::unpin(int32_t page) noexcept {
  const auto i = static_cast<size_t>(page);
  assert(n_pins_[i] > 0);
  if (--n_pins_[i] > 0 || n_users_[i] > 0) return;
  --n_pinned_free_;
  put_in(page);
}

void PagePool::put_in(int32_t page) noexcept {
  const auto i = static_cast<size_t>(page);
  ready_[i / 64] |= uint64_t{1} << i % 64;
  first_word_ = std::min(first_word_, i / 64);
}

}  // namespace assay::pages
