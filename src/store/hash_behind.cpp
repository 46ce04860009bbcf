// See hash_behind.h.
#include "store/hash_behind.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "assay/error.h"

namespace assay::store {
namespace {

constexpr size_t kReadAtOnce = size_t{256} << 10;  // what the processor's cache holds beside the rest
constexpr size_t kKeptMost = size_t{4} << 20;      // bytes, and a part more
constexpr int64_t kBeginWriting = 8 << 20;

}  // namespace

void HashBehind::stop() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  for_worker_.notify_one();
  worker_.join();
}

void HashBehind::grow(int descriptor, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  announce(descriptor, bytes);
}

// What the processor's cache still has costs less than reading the file.
void HashBehind::grow(int descriptor, int64_t bytes, std::vector<std::byte>& last) {
  std::unique_lock lock(mutex_);
  for_caller_.wait(lock, [&] { return bytes_kept_ < kKeptMost || is_reading_ || problem_; });
  if (bytes_kept_ < kKeptMost && !last.empty()) {
    bytes_kept_ += last.size();
    kept_.push_back({bytes - static_cast<int64_t>(last.size()), std::move(last)});
    last.clear();
    if (!spare_.empty()) last.swap(spare_.back()), spare_.pop_back();
  }
  announce(descriptor, bytes);
}

void HashBehind::announce(int descriptor, int64_t bytes) {
  bytes_ = bytes;
  if (!worker_.joinable()) {
    descriptor_ = descriptor;
    worker_ = std::thread([this] { work(); });
  }
  if (!is_busy_) for_worker_.notify_one();
}

std::string HashBehind::digest() {
  std::unique_lock lock(mutex_);
  for_caller_.wait(lock, [&] { return !is_busy_ && (problem_ || bytes_hashed_ == bytes_); });
  if (problem_) std::rethrow_exception(problem_);
  std::string text = digest_.hex();
  digest_ = Sha256();
  return text;
}

void HashBehind::restart() {
  std::unique_lock lock(mutex_);
  bytes_ = 0;
  for_caller_.wait(lock, [&] { return !is_busy_; });
  bytes_hashed_ = bytes_begun_ = 0;
  kept_.clear();
  bytes_kept_ = 0;
  problem_ = nullptr;
  digest_ = Sha256();
}

// What is hashed next: with its bytes where they are kept, else with memory to read them into.
HashBehind::Block HashBehind::next() {
  if (!kept_.empty() && kept_.front().begin == bytes_hashed_) {
    Block block = std::move(kept_.front());
    kept_.pop_front();
    bytes_kept_ -= block.bytes.size();
    return block;
  }
  Block block{bytes_hashed_, {}};
  if (!spare_.empty()) {
    block.bytes = std::move(spare_.back());
    spare_.pop_back();
  }
  block.bytes.clear();
  return block;
}

void HashBehind::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    for_worker_.wait(lock, [&] { return ends_ || (bytes_hashed_ < bytes_ && !problem_); });
    if (ends_) return;
    Block block = next();
    const int64_t end = kept_.empty() ? bytes_ : std::min(bytes_, kept_.front().begin);
    is_busy_ = true;
    is_reading_ = block.bytes.empty();
    lock.unlock();
    std::exception_ptr problem;
    try {
      if (block.bytes.empty()) read(block, static_cast<size_t>(std::min<int64_t>(end - block.begin, kReadAtOnce)));
      digest_.add(block.bytes);
      begin_writing(block.begin + static_cast<int64_t>(block.bytes.size()));
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    is_busy_ = false;
    problem_ = problem;
    bytes_hashed_ = block.begin + static_cast<int64_t>(block.bytes.size());
    spare_.push_back(std::move(block.bytes));
    for_caller_.notify_all();
  }
}

void HashBehind::read(Block& block, size_t n) {
  block.bytes.resize(n);
  for (size_t at = 0; at < n;) {
    const ssize_t got = ::pread(descriptor_, block.bytes.data() + at, n - at,
                                static_cast<off_t>(block.begin + static_cast<int64_t>(at)));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw Error(Errc::io, fmt::format("what was written cannot be read back: {}",
                                        got < 0 ? std::generic_category().message(errno) : "the file is shorter"));
    }
    at += static_cast<size_t>(got);
  }
}

// While the next bytes come, so that little is left to wait for at the end.
void HashBehind::begin_writing(int64_t end) {
  if (end - bytes_begun_ < kBeginWriting) return;
  ::sync_file_range(descriptor_, bytes_begun_, end - bytes_begun_, SYNC_FILE_RANGE_WRITE);
  bytes_begun_ = end;
}

}  // namespace assay::store
