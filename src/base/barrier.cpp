// See barrier.h.
#include "base/barrier.h"

#include <thread>

namespace assay::base {
namespace {

constexpr int kSpins = 2000, kYields = 20;

}  // namespace

bool Barrier::wait() noexcept {
  const uint32_t round = round_.load(std::memory_order_acquire);
  if ((round & kCalledOff) != 0) return false;
  if (n_here_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    n_here_.store(0, std::memory_order_relaxed);
    uint32_t expected = round;  // the bit may have been set meanwhile; then nobody is let through
    const bool goes_on = round_.compare_exchange_strong(expected, (round + 1) & ~kCalledOff, std::memory_order_acq_rel);
    round_.notify_all();
    return goes_on;
  }
  uint32_t now = round;
  for (int i = 0; i < kSpins + kYields && now == round; ++i) {
    if (i >= kSpins) std::this_thread::yield();
    now = round_.load(std::memory_order_acquire);
  }
  while (now == round) {
    round_.wait(round, std::memory_order_acquire);
    now = round_.load(std::memory_order_acquire);
  }
  return (now & kCalledOff) == 0;
}

void Barrier::call_off() noexcept {
  round_.fetch_or(kCalledOff, std::memory_order_acq_rel);
  round_.notify_all();
}

void Barrier::reopen() noexcept {
  n_here_.store(0, std::memory_order_relaxed);
  round_.store(0, std::memory_order_release);
}

}  // namespace assay::base
