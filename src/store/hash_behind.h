// The digest of a file that grows: a thread of its own takes what has been written, and lets it go on to the disk. What
// it comes to late is read back from the file, so nobody waits for it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "store/sha256.h"

namespace assay::store {

class HashBehind {
 public:
  HashBehind() = default;
  ~HashBehind() { stop(); }
  HashBehind(const HashBehind&) = delete;
  HashBehind& operator=(const HashBehind&) = delete;

  // The file has so many bytes by now, and they stay as they are. The descriptor is always the same.
  void grow(int descriptor, int64_t bytes);
  // The same where the caller still has those at its end: takes them, for memory of others in exchange. Waits while
  // many that were taken are not hashed yet, and leaves them where older ones are read back first.
  void grow(int descriptor, int64_t bytes, std::vector<std::byte>& last);
  std::string digest();  // of all of them; once. Error(io)
  void restart();        // an empty file
  void stop();           // after the read at work; no longer uses the descriptor

 private:
  struct Block {
    int64_t begin = 0;
    std::vector<std::byte> bytes;
  };
  void announce(int descriptor, int64_t bytes);
  Block next();
  void work();
  void read(Block& block, size_t n);
  void begin_writing(int64_t end);

  std::mutex mutex_;
  std::condition_variable for_worker_, for_caller_;
  int descriptor_ = -1;
  int64_t bytes_ = 0, bytes_hashed_ = 0;
  std::deque<Block> kept_;  // of what is not hashed yet, in order, up to bytes_
  size_t bytes_kept_ = 0;
  std::vector<std::vector<std::byte>> spare_;  // their memory again
  bool is_busy_ = false, is_reading_ = false, ends_ = false;
  std::exception_ptr problem_;
  // The worker's, while it is busy:
  Sha256 digest_;
  int64_t bytes_begun_ = 0;  // that the system was told to write to the disk
  std::thread worker_;       // begins with the first bytes
};

}  // namespace assay::store
