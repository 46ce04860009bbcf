// See fetch_batch.h.
#include "backend/cuda/decode/fetch_batch.h"
#include "backend/cuda/runtime/launch.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kParts = 4;

__global__ void __launch_bounds__(kThreads) fetch_kernel(const int32_t* host, int32_t* device, BatchWords words) {
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x), in_parts = i - words.n_head,
            in_tail = in_parts - kParts * words.n_tokens;
  if (in_tail >= words.n_tail) return;
  int at = i;
  if (in_tail >= 0) {
    at = words.n_head + kParts * words.part + in_tail;
  } else if (in_parts >= 0) {
    at = words.n_head + in_parts / words.n_tokens * words.part + in_parts % words.n_tokens;
  }
  device[at] = host[at];
}

}  // namespace

void fetch_batch(const int32_t* host, int32_t* device, const BatchWords& words, cudaStream_t stream) {
  const int n = words.n_head + kParts * words.n_tokens + words.n_tail;
  take_decode_cut(fetch_kernel);
  fetch_kernel<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0, stream>>>(host, device, words);
}

}  // namespace assay::backend::cuda
