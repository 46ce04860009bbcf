// Which parts of a piece of memory are free: first fit, neighbours joined again.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace assay::backend::vulkan {

class FreeList {
 public:
  static constexpr size_t kAlignment = 256;  // of what is taken, above any that Vulkan asks for

  FreeList() = default;
  explicit FreeList(size_t bytes) : free_{{0, bytes}} {}

  // bytes: a multiple of the alignment. Nothing where there is no place.
  std::optional<size_t> take(size_t bytes) {
    for (size_t i = 0; i < free_.size(); ++i) {
      if (free_[i].bytes < bytes) continue;
      const size_t at = free_[i].begin;
      free_[i].begin += bytes;
      free_[i].bytes -= bytes;
      if (free_[i].bytes == 0) free_.erase(free_.begin() + static_cast<ptrdiff_t>(i));
      return at;
    }
    return std::nullopt;
  }

  void give_back(size_t begin, size_t bytes) {
    size_t i = 0;
    while (i < free_.size() && free_[i].begin < begin) ++i;
    free_.insert(free_.begin() + static_cast<ptrdiff_t>(i), {begin, bytes});
    const auto join = [this](size_t left) {
      if (left + 1 >= free_.size() || free_[left].begin + free_[left].bytes != free_[left + 1].begin) return;
      free_[left].bytes += free_[left + 1].bytes;
      free_.erase(free_.begin() + static_cast<ptrdiff_t>(left) + 1);
    };
    join(i);
    if (i > 0) join(i - 1);
  }

  size_t n_parts() const noexcept { return free_.size(); }

 private:
  struct Part {
    size_t begin = 0, bytes = 0;
  };
  std::vector<Part> free_;  // by begin, none next to another
};

}  // namespace assay::backend::vulkan
