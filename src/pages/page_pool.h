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

  // The free page of the lowest number, which keeps memory that was never touched untouched. There must be one.
  int32_t take() noexcept;
  void share(int32_t page) noexcept;  // one user more of a page in use
  void leave(int32_t page) noexcept;  // one user less; the last one frees it
  bool is_shared(int32_t page) const noexcept { return n_users_[static_cast<size_t>(page)] > 1; }

 private:
  std::vector<int32_t> n_users_;
  std::vector<uint64_t> free_;  // a bit a page
  size_t first_word_ = 0;       // no word before it has a free page
  int64_t n_free_ = 0;
};

}  // namespace assay::pages
