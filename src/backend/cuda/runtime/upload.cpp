// See upload.h.
#include "backend/cuda/runtime/upload.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "assay/error.h"

namespace assay::backend::cuda {
namespace {

constexpr size_t kBufferBytes = 32 << 20;
constexpr size_t kTaskBytes = 1 << 20;  // that a thread copies at a time
constexpr int kThreads = 4;             // more than the memory of a file needs

}  // namespace

uint64_t sum_words(std::span<const std::byte> bytes, uint64_t first) noexcept {
  uint64_t sum = 0, weight = 2 * first + 1;
  size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4, weight += 2) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + i, 4);
    sum += word * weight;
  }
  if (i == bytes.size()) return sum;
  uint32_t word = 0;
  std::memcpy(&word, bytes.data() + i, bytes.size() - i);
  return sum + word * weight;
}

Upload::Upload(size_t n_pieces_max, cudaStream_t stream, OnSent on_sent)
    : stream_(stream), pool_(std::min(kThreads, base::physical_cores())),
      buffers_{Buffer{PinnedBuffer(kBufferBytes, "the weights on their way"), {}},
               Buffer{PinnedBuffer(kBufferBytes, "the weights on their way"), {}}},
      on_sent_(std::move(on_sent)), sums_(n_pieces_max * sizeof(unsigned long long), "the sums of the weights") {
  check(cudaMemsetAsync(sums_.data(), 0, sums_.size(), stream), "copying weights to the GPU");
}

uint64_t Upload::fill(std::byte* to, std::span<const std::byte> from, uint64_t first_word) {
  const auto n_tasks = static_cast<int64_t>((from.size() + kTaskBytes - 1) / kTaskBytes);
  std::vector<uint64_t> sums(static_cast<size_t>(n_tasks));
  pool_.run(n_tasks, [&](int64_t task, int) {
    const size_t begin = static_cast<size_t>(task) * kTaskBytes, n = std::min(kTaskBytes, from.size() - begin);
    std::memcpy(to + begin, from.data() + begin, n);
    sums[static_cast<size_t>(task)] = sum_words({to + begin, n}, first_word + begin / 4);
  });
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

void Upload::send(std::byte* target, std::span<const std::byte> from, const std::string& name) {
  Piece piece{name, 0};
  for (size_t begin = 0; begin < from.size(); begin += kBufferBytes) {
    const size_t n = std::min(kBufferBytes, from.size() - begin);
    Buffer& buffer = buffers_[next_];
    next_ = 1 - next_;
    buffer.sent.wait();
    piece.sum += fill(buffer.memory.data(), from.subspan(begin, n), begin / 4);
    check(cudaMemcpyAsync(target + begin, buffer.memory.data(), n, cudaMemcpyHostToDevice, stream_),
          "copying weights to the GPU");
    buffer.sent.record(stream_);
    n_sent_ += static_cast<int64_t>(n);
    if (on_sent_) on_sent_(n_sent_);
  }
  add_word_sum(target, from.size(), sums_.as<unsigned long long>() + pieces_.size(), stream_);
  pieces_.push_back(std::move(piece));
}

void Upload::finish() {
  std::vector<unsigned long long> arrived(pieces_.size());
  check(cudaGetLastError(), "copying weights to the GPU");
  check(cudaMemcpyAsync(arrived.data(), sums_.data(), arrived.size() * sizeof arrived[0], cudaMemcpyDeviceToHost,
                        stream_),
        "copying weights to the GPU");
  check(cudaStreamSynchronize(stream_), "copying weights to the GPU");
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (arrived[i] == pieces_[i].sum) continue;
    throw Error(
        Errc::device,
        pieces_[i].name +
            ": the bytes that arrived in the GPU's memory are not those of the file; the GPU or its bus is at fault");
  }
}

}  // namespace assay::backend::cuda
