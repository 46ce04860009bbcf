// Copies between a memory and elsewhere that others still make. Whoever owns the memory waits for them before it is
// looked at, moved or freed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace assay::base {

class PendingCopies {
 public:
  PendingCopies() = default;
  ~PendingCopies() { wait(); }
  PendingCopies(const PendingCopies&) = delete;
  PendingCopies& operator=(const PendingCopies&) = delete;

  void begin() {
    const std::lock_guard lock(mutex_);
    ++n_;
  }
  // The last use of it by whoever copies: it may be gone when this returns.
  void end(bool is_whole) {
    const std::lock_guard lock(mutex_);
    all_whole_ = all_whole_ && is_whole;
    if (--n_ == 0) changed_.notify_all();
  }
  bool is_over() const {
    const std::lock_guard lock(mutex_);
    return n_ == 0;
  }
  // Until none is under way. False: one of them failed.
  bool wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return n_ == 0; });
    return all_whole_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  int64_t n_ = 0;
  bool all_whole_ = true;
};

}  // namespace assay::base
