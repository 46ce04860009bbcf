// SHA-256 in a thread of its own, so that receiving and writing go on meanwhile.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "store/sha256.h"

namespace assay::store {

class BackgroundSha256 {
 public:
  BackgroundSha256() = default;
  ~BackgroundSha256();
  BackgroundSha256(const BackgroundSha256&) = delete;
  BackgroundSha256& operator=(const BackgroundSha256&) = delete;

  void add(std::span<const std::byte> bytes);  // copied; waits while much is still to be done
  void restart();                              // as if nothing had been added
  std::string hex();                           // of all that was added; then as after restart()

 private:
  void hand_over();
  void wait_until_idle(std::unique_lock<std::mutex>& lock);
  void work();

  std::vector<std::byte> gathered_;  // the caller's; not queued yet
  std::mutex mutex_;
  std::condition_variable for_worker_, for_caller_;
  std::deque<std::vector<std::byte>> queue_;  // its first one is being added
  size_t n_queued_ = 0;                       // bytes
  bool ends_ = false;
  std::exception_ptr problem_;
  Sha256 digest_;       // the worker's while the queue is not empty
  std::thread worker_;  // begins with the first bytes
};

}  // namespace assay::store
