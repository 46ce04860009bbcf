// See background_sha256.h.
#include "store/background_sha256.h"

#include <utility>

namespace assay::store {
namespace {

constexpr size_t kQueuedMax = size_t{8} << 20;
// Handed to the worker at once: what comes from a network are some kilobytes each.
constexpr size_t kBlockBytes = size_t{1} << 20;

}  // namespace

BackgroundSha256::~BackgroundSha256() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  for_worker_.notify_one();
  worker_.join();
}

void BackgroundSha256::add(std::span<const std::byte> bytes) {
  if (gathered_.capacity() < kBlockBytes) gathered_.reserve(kBlockBytes);
  gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
  if (gathered_.size() >= kBlockBytes) hand_over();
}

void BackgroundSha256::hand_over() {
  if (gathered_.empty()) return;
  std::unique_lock lock(mutex_);
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  for_caller_.wait(lock, [&] { return n_queued_ < kQueuedMax; });
  n_queued_ += gathered_.size();
  queue_.push_back(std::exchange(gathered_, {}));
  for_worker_.notify_one();
}

void BackgroundSha256::wait_until_idle(std::unique_lock<std::mutex>& lock) {
  for_caller_.wait(lock, [&] { return queue_.empty(); });
}

void BackgroundSha256::restart() {
  gathered_.clear();
  std::unique_lock lock(mutex_);
  wait_until_idle(lock);
  problem_ = nullptr;
  digest_ = Sha256();
}

std::string BackgroundSha256::hex() {
  hand_over();
  std::unique_lock lock(mutex_);
  wait_until_idle(lock);
  if (problem_) std::rethrow_exception(problem_);
  std::string text = digest_.hex();
  digest_ = Sha256();
  return text;
}

void BackgroundSha256::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    for_worker_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    const std::vector<std::byte>& first = queue_.front();  // stays where it is while others are added
    lock.unlock();
    std::exception_ptr problem;
    try {
      digest_.add(first);
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    if (problem) problem_ = problem;
    n_queued_ -= queue_.front().size();
    queue_.pop_front();
    for_caller_.notify_all();
  }
}

}  // namespace assay::store
