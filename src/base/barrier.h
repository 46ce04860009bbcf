// Where a fixed number of threads wait for one another, again and again, and any of them can call the barrier off: what
// the shards of a model meet at. Waits spin briefly, then sleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace assay::base {

class Barrier {
 public:
  explicit Barrier(int n_threads) : n_threads_(static_cast<uint32_t>(n_threads)) {}

  int n_threads() const noexcept { return static_cast<int>(n_threads_); }
  // True once all have come, and what each did before is seen by all; false where the barrier is called off, before or
  // while it waits.
  [[nodiscard]] bool wait() noexcept;
  void call_off() noexcept;
  void reopen() noexcept;  // once no thread is in wait()

 private:
  static constexpr uint32_t kCalledOff = 1u << 31;  // a bit of round_
  const uint32_t n_threads_;
  std::atomic<uint32_t> n_here_{0}, round_{0};
};

}  // namespace assay::base
