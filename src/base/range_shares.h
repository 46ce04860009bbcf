// A range of units that threads share out among themselves: each begins with a part of its own and goes through it in
// order, in fewer and fewer units at a time; who has no more takes from the end of another's. So a thread reads long
// runs that follow one another, and all end together within a unit's time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace assay::base {

class RangeShares {
 public:
  explicit RangeShares(int n_shares);  // at least 1

  // Units [0, n), n below 2^32, in equal parts. Not while others take.
  void reset(int64_t n) noexcept;

  struct Range {
    int64_t begin = 0, end = 0;
    bool empty() const noexcept { return begin == end; }
  };
  // The next units for the owner of `share`: half of what is left of its part (all of it where there is one share), or
  // half of what is left of the next part that is not done; empty where all are taken. Each unit is given once. Orders
  // no memory: a join does.
  Range take(int share) noexcept;

 private:
  struct alignas(64) Part {
    std::atomic<uint64_t> left{0};  // begin << 32 | end
  };
  int n_shares_;
  std::unique_ptr<Part[]> parts_;
};

}  // namespace assay::base
