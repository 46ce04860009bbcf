// The device's side of upload.h: a sum of integers, so that no order matters.
#include <algorithm>

#include "backend/cuda/runtime/upload.h"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 256, kBlocksMax = 1024;

__device__ unsigned long long weighted(uint32_t word, size_t i) { return word * (2ull * i + 1ull); }

__global__ void word_sum_kernel(const uint8_t* bytes, size_t n_bytes, unsigned long long* sum) {
  const auto* words = reinterpret_cast<const uint32_t*>(bytes);  // what is sent begins at a multiple of 256 bytes
  const size_t n_words = n_bytes / 4, step = static_cast<size_t>(gridDim.x) * kThreads,
               first = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  unsigned long long own = 0;
  for (size_t i = first; i < n_words; i += step) own += weighted(words[i], i);
  if (first == 0 && n_bytes % 4 != 0) {
    uint32_t last = 0;
    for (size_t i = 4 * n_words; i < n_bytes; ++i) last |= static_cast<uint32_t>(bytes[i]) << (8 * (i % 4));
    own += weighted(last, n_words);
  }
  for (int distance = 16; distance > 0; distance /= 2) own += __shfl_xor_sync(0xFFFFFFFFu, own, distance);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, own);
}

}  // namespace

void add_word_sum(const std::byte* bytes, size_t n_bytes, unsigned long long* sum, cudaStream_t stream) {
  if (n_bytes == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<size_t>(kBlocksMax, n_bytes / 4 / kThreads + 1));
  word_sum_kernel<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const uint8_t*>(bytes), n_bytes, sum);
}

}  // namespace assay::backend::cuda
