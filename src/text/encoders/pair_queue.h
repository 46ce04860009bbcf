// Pairs of neighbours that wait to be merged: the least key comes first, key = priority << 32 |
// index of the left symbol. A heap with four children to a node: a megabyte of text makes a million
// entries, and this halves the cache misses of a binary one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay::text {

class PairQueue {
 public:
  bool empty() const noexcept { return keys_.empty(); }
  void clear() noexcept { keys_.clear(); }

  // add: many keys at once, in any order; then sort_in before the first pop.
  void add(uint64_t key) { keys_.push_back(key); }
  void sort_in() noexcept {
    if (keys_.size() < 2) return;
    for (size_t i = (keys_.size() - 2) / 4 + 1; i-- > 0;) sink(i, keys_[i]);
  }

  void push(uint64_t key) {
    keys_.push_back(key);
    size_t i = keys_.size() - 1;
    for (; i > 0 && key < keys_[(i - 1) / 4]; i = (i - 1) / 4) keys_[i] = keys_[(i - 1) / 4];
    keys_[i] = key;
  }

  uint64_t pop() noexcept {
    const uint64_t least = keys_.front();
    const uint64_t last = keys_.back();
    keys_.pop_back();
    if (!keys_.empty()) sink(0, last);
    return least;
  }

 private:
  // Puts key where i is, or below, so that no child is less than its parent.
  void sink(size_t i, uint64_t key) noexcept {
    const size_t n = keys_.size();
    for (size_t child; (child = 4 * i + 1) < n; i = child) {
      const size_t end = std::min(child + 4, n);
      for (size_t other = child + 1; other < end; ++other) child = keys_[other] < keys_[child] ? other : child;
      if (keys_[child] >= key) break;
      keys_[i] = keys_[child];
    }
    keys_[i] = key;
  }

  std::vector<uint64_t> keys_;
};

}  // namespace assay::text
