// Bytes on their way from the file's map to the device: through page-locked buffers by turns, filled by several threads
// while another travels, and summed on both sides, so that a copy that arrives changed is an error and not another
// model.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/runtime/device_memory.h"
#include "base/thread_pool.h"

namespace assay::backend::cuda {

// Sum of the 32-bit words, each times its odd weight 2 i + 1, modulo 2^64; a last word that is not whole is filled up
// with zeros. first: the number i of the first word.
uint64_t sum_words(std::span<const std::byte> bytes, uint64_t first) noexcept;
// Adds the same of the device's n_bytes, from word 0 on, to *sum on the device.
void add_word_sum(const std::byte* bytes, size_t n_bytes, unsigned long long* sum, cudaStream_t stream);

class Upload {
 public:
  // At most n_pieces_max pieces will be sent. on_sent: told of the bytes sent so far, after every buffer.
  using OnSent = std::function<void(int64_t n_bytes)>;
  Upload(size_t n_pieces_max, cudaStream_t stream, OnSent on_sent = {});

  // Queues the copy of a piece. What is queued on the stream after it finds the bytes there. name: for the error.
  void send(std::byte* target, std::span<const std::byte> from, const std::string& name);
  // Waits for all pieces. Error(device) where one is not what was sent.
  void finish();

 private:
  struct Buffer {
    PinnedBuffer memory;
    Event sent;
  };
  struct Piece {
    std::string name;
    uint64_t sum = 0;
  };
  uint64_t fill(std::byte* to, std::span<const std::byte> from, uint64_t first_word);

  cudaStream_t stream_;
  base::ThreadPool pool_;
  std::array<Buffer, 2> buffers_;
  size_t next_ = 0;
  std::vector<Piece> pieces_;
  OnSent on_sent_;
  int64_t n_sent_ = 0;
  DeviceBuffer sums_;  // of each piece, as it arrived
};

}  // namespace assay::backend::cuda
