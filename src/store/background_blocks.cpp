// See background_blocks.h.
#include "store/background_blocks.h"

#include <algorithm>
#include <utility>

namespace assay::store {
namespace {

constexpr size_t kQueuedMax = size_t{8} << 20;
// Of bytes that are added while others are at work: what comes from a network are some kilobytes each.
constexpr size_t kBlockBytes = size_t{1} << 20;

}  // namespace

BackgroundBlocks::BackgroundBlocks(Take take) : take_(std::move(take)) {}

BackgroundBlocks::~BackgroundBlocks() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  for_worker_.notify_one();
  worker_.join();
}

void BackgroundBlocks::wait_for_room(std::unique_lock<std::mutex>& lock) {
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  for_caller_.wait(lock, [&] { return n_queued_ < kQueuedMax; });
  if (problem_) std::rethrow_exception(problem_);
}

void BackgroundBlocks::add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  std::unique_lock lock(mutex_);
  wait_for_room(lock);
  if (open_ == nullptr || open_->size() + bytes.size() > kBlockBytes) {
    open_ = std::make_shared<std::vector<std::byte>>();
    if (!queue_.empty()) open_->reserve(std::max(kBlockBytes, bytes.size()));
    queue_.push_back(open_);
  }
  open_->insert(open_->end(), bytes.begin(), bytes.end());
  n_queued_ += bytes.size();
  for_worker_.notify_one();
}

void BackgroundBlocks::add(Block block) {
  std::unique_lock lock(mutex_);
  wait_for_room(lock);
  open_ = nullptr;
  n_queued_ += block->size();
  queue_.push_back(std::move(block));
  for_worker_.notify_one();
}

void BackgroundBlocks::wait() {
  std::unique_lock lock(mutex_);
  for_caller_.wait(lock, [&] { return queue_.empty(); });
  if (problem_) std::rethrow_exception(problem_);
}

void BackgroundBlocks::forget() {
  std::unique_lock lock(mutex_);
  for_caller_.wait(lock, [&] { return queue_.empty(); });
  problem_ = nullptr;
}

void BackgroundBlocks::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    for_worker_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    const Block first = queue_.front();
    if (first == open_) open_ = nullptr;
    std::exception_ptr problem = problem_;
    lock.unlock();
    try {
      if (!problem) take_(first);
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    problem_ = problem;
    n_queued_ -= first->size();
    queue_.pop_front();
    for_caller_.notify_all();
  }
}

}  // namespace assay::store
