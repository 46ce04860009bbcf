// See range_shares.h.
#include "base/range_shares.h"

namespace assay::base {
namespace {

constexpr uint64_t pack(uint64_t begin, uint64_t end) noexcept { return begin << 32 | end; }

}  // namespace

RangeShares::RangeShares(int n_shares)
    : n_shares_(n_shares), parts_(std::make_unique<Part[]>(static_cast<size_t>(n_shares))) {}

void RangeShares::reset(int64_t n) noexcept {
  for (int i = 0; i < n_shares_; ++i) {
    const auto at = [&](int64_t part) { return static_cast<uint64_t>(n * part / n_shares_); };
    parts_[static_cast<size_t>(i)].left.store(pack(at(i), at(i + 1)), std::memory_order_relaxed);
  }
}

RangeShares::Range RangeShares::take(int share) noexcept {
  for (int i = 0; i < n_shares_; ++i) {
    std::atomic<uint64_t>& left = parts_[static_cast<size_t>((share + i) % n_shares_)].left;
    uint64_t seen = left.load(std::memory_order_relaxed);
    for (uint64_t begin = seen >> 32, end = seen & UINT32_MAX; begin != end;
         begin = seen >> 32, end = seen & UINT32_MAX) {
      const uint64_t n = n_shares_ == 1 ? end - begin : (end - begin + 1) / 2;
      const bool own = i == 0;
      const uint64_t rest = own ? pack(begin + n, end) : pack(begin, end - n);
      if (!left.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) continue;
      const uint64_t first = own ? begin : end - n;
      return {static_cast<int64_t>(first), static_cast<int64_t>(first + n)};
    }
  }
  return {};
}

}  // namespace assay::base
