// Keys and values on their way into the cache: one warp 32 elements of one head of one token.
#include "backend/cuda/attention/kv_place.cuh"

namespace assay::backend::cuda {
namespace {

__global__ void store_kernel(CacheView cache, const float* k, const float* v, const int32_t* positions,
                             const int32_t* sequences, int64_t n_tokens) {
  const int64_t warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  const int64_t of_key = (cache.head_dim + 31) / 32, of_value = cache.values_in_keys ? 0 : (cache.v_dim + 31) / 32;
  const int64_t n = n_tokens * cache.n_kv_heads;
  if (warp >= n * (of_key + of_value)) return;
  const bool keys = warp < n * of_key;
  const int64_t i = keys ? warp : warp - n * of_key, per_head = keys ? of_key : of_value,
                width = keys ? cache.head_dim : cache.v_dim;
  const int64_t token = i / (cache.n_kv_heads * per_head), head = i / per_head % cache.n_kv_heads;
  const int64_t j = i % per_head * 32 + threadIdx.x % 32;
  const bool inside = j < width;
  const int64_t position = positions[token];
  std::byte* page = page_of(table_of(cache, sequences[token]), position / kCachePage);
  const float* row = (keys ? k : v) + (token * cache.n_kv_heads + head) * width;
  const float x = inside ? row[j] : 0.0f;
  if (keys) {
    put(cache.type_k, x, inside, key_place(cache, page, head, position, j));
  } else {
    put(cache.type_v, x, inside, value_place(cache, page, head, position, j));
  }
}

}  // namespace

void kv_store(const CacheView& cache, const float* k, const float* v, const int32_t* positions,
              const int32_t* sequences, int64_t n_tokens, cudaStream_t stream) {
  const int64_t of_head = (cache.head_dim + 31) / 32 + (cache.values_in_keys ? 0 : (cache.v_dim + 31) / 32);
  const int64_t n_threads = n_tokens * cache.n_kv_heads * of_head * 32;
  constexpr int kThreads = 128;
  if (n_threads == 0) return;
  store_kernel<<<static_cast<unsigned>((n_threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      cache, k, v, positions, sequences, n_tokens);
}

}  // namespace assay::backend::cuda
