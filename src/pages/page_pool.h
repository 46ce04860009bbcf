// Which pages of a pool are in use, and by how many. Knows numbers only: what a page holds is its owner's affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay::pages {

class PagePool {
 public:
  explicit PagePool(int64_t n_pages);

  int64_t n_pages() const noexcept { return static_cast<int64_t>(n_users_.size()); }
  int64_t n_free() const noexcept { return n_free_; }
  int64_t n_ready() const noexcept { return n_free_ - n_pinned_free_; }  // of these, how many take() has now

  // The free page of the lowest number, which keeps memory that was never touched untouched. One must be ready.
  int32_t take() noexcept;
  void share(int32_t page) noexcept;  // one user more of a page in use
  void leave(int32_t page) noexcept;  // one user less; the last one frees it
  bool is_shared(int32_t page) const noexcept { return n_users_[static_cast<size_t>(page)] > 1; }
  // While somebody copies what is in a page it is nobody else's, used or free. Pinned as often as unpinned.
  void pin(int32_t page) noexcept;
  void unpin(int32_t page) noexcept;
  bool is_pinned(int32_t page) const noexcept { return n_pins_[static_cast<size_t>(page)] > 0; }

 private:
  void put_in(int32_t page) noexcept;  // it is ready

  std::vector<int32_t> n_users_, n_pins_;
  std::vector<uint64_t> ready_;  // a bit a page
  size_t first_word_ = 0;        // no word before it has a page that is ready
  int64_t n_free_ = 0, n_pinned_free_ = 0;
};

}  // namespace assay::pages
