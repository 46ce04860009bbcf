// Blocks of bytes taken by a function in a thread of its own, one after the other, so that the caller goes on
// meanwhile.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace assay::store {

class BackgroundBlocks {
 public:
  using Block = std::shared_ptr<const std::vector<std::byte>>;
  using Take = std::function<void(const Block&)>;

  explicit BackgroundBlocks(Take take);
  ~BackgroundBlocks();  // after the block at work; those behind it are not taken
  BackgroundBlocks(const BackgroundBlocks&) = delete;
  BackgroundBlocks& operator=(const BackgroundBlocks&) = delete;

  // These throw what `take` threw; after that no block is taken until forget(). Adding waits while much is still to be
  // done.
  void add(std::span<const std::byte> bytes);  // copied, to the block that waits last
  void add(Block block);                       // as it is
  void wait();                                 // until all are taken

  void forget();  // waits as well, and no longer knows of a failure

 private:
  void work();
  void wait_for_room(std::unique_lock<std::mutex>& lock);

  Take take_;
  std::mutex mutex_;
  std::condition_variable for_worker_, for_caller_;
  std::deque<Block> queue_;                       // its first one is at work
  std::shared_ptr<std::vector<std::byte>> open_;  // queue_.back() while bytes may still be added to it
  size_t n_queued_ = 0;                           // bytes
  bool ends_ = false;
  std::exception_ptr problem_;
  std::thread worker_;  // begins with the first block
};

}  // namespace assay::store
