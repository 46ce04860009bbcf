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

constexpr size_t kHashedAtOnce = size_t{256} << 10;  // what the processor's cache holds beside the rest
constexpr int64_t kBeginWriting = 16 << 20;

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
  descriptor_ = descriptor;
  bytes_ = bytes;
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
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
  problem_ = nullptr;
  digest_ = Sha256();
}

void HashBehind::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    for_worker_.wait(lock, [&] { return ends_ || (bytes_hashed_ < bytes_ && !problem_); });
    if (ends_) return;
    const int64_t begin = bytes_hashed_, end = bytes_;
    is_busy_ = true;
    lock.unlock();
    std::exception_ptr problem;
    try {
      read(begin, std::min(end, begin + static_cast<int64_t>(kHashedAtOnce)));
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    is_busy_ = false;
    problem_ = problem;
    bytes_hashed_ = std::min(end, begin + static_cast<int64_t>(kHashedAtOnce));
    for_caller_.notify_all();
  }
}

void HashBehind::read(int64_t begin, int64_t end) {
  buffer_.resize(kHashedAtOnce);
  while (begin < end) {
    const ssize_t n = ::pread(descriptor_, buffer_.data(), static_cast<size_t>(end - begin), begin);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw Error(Errc::io, fmt::format("what was written cannot be read back: {}",
                                        n < 0 ? std::generic_category().message(errno) : "the file is shorter"));
    }
    digest_.add(std::span(buffer_).first(static_cast<size_t>(n)));
    begin += n;
  }
  // While the next bytes come, so that little is left to wait for at the end.
  if (end - bytes_begun_ < kBeginWriting) return;
  ::sync_file_range(descriptor_, bytes_begun_, end - bytes_begun_, SYNC_FILE_RANGE_WRITE);
  bytes_begun_ = end;
}

}  // namespace assay::store
