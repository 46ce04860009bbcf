// Keys and values on their way into the cache: one warp 32 elements of one head of one token.
#include <cuda_fp16.h>

#include "backend/cuda/kv_cache.h"
#include "backend/cuda/warp.cuh"
#include "num/f16.h"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

constexpr int kQ8Elements = 32;

// Where element j of a key or a value lies, and its block's scale (q8_0).
struct Place {
  std::byte* element;
  std::byte* scale;
};
__device__ Place key_place(const CacheView& c, int64_t head, int64_t position, int64_t j) {
  std::byte* tile = c.k + head * c.k_head_bytes + position / kKeyTile * c.k_tile_bytes;
  const int64_t lane = position % kKeyTile;
  const int64_t bytes = c.type_k == ops::CacheType::f32 ? 4 : c.type_k == ops::CacheType::f16 ? 2 : 1;
  const int64_t at = j * bytes;
  std::byte* scales = tile + c.n_pieces * kKeyTile * kPieceBytes;
  return {tile + (at / kPieceBytes * kKeyTile + lane) * kPieceBytes + at % kPieceBytes, scales + (j / kQ8Elements * kKeyTile + lane) * 2};
}
__device__ Place value_place(const CacheView& c, int64_t head, int64_t position, int64_t j) {
  std::byte* row = c.v + head * c.v_head_bytes + position * c.v_row_bytes;
  const int64_t bytes = c.type_v == ops::CacheType::f32 ? 4 : c.type_v == ops::CacheType::f16 ? 2 : 1;
  return {row + j * bytes, row + c.head_dim + j / kQ8Elements * 2};
}

__device__ void put(ops::CacheType type, float x, bool inside, const Place& place) {
  if (type == ops::CacheType::q8_0) {  // head_dim is a multiple of 32: all lanes are inside
    const quant::BlockScale scale = quant::block_scale(warp_max(__float_as_uint(x) & 0x7FFFFFFFu));
    const float q = scale.r == 0.0f ? 0.0f : quant::first_plane(x, scale.r);
    *reinterpret_cast<int8_t*>(place.element) = static_cast<int8_t>(q);
    if (threadIdx.x % 32 == 0) *reinterpret_cast<uint16_t*>(place.scale) = num::float_to_half(scale.d);
  } else if (!inside) {
    return;
  } else if (type == ops::CacheType::f16) {
    *reinterpret_cast<uint16_t*>(place.element) = num::float_to_half(x);
  } else {
    *reinterpret_cast<float*>(place.element) = x;
  }
}

__global__ void store_kernel(CacheView cache, const float* k, const float* v, const int32_t* positions, const int32_t* sequences,
                             int64_t n_tokens) {
  const int64_t warp = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  const int64_t per_head = (cache.head_dim + 31) / 32;
  const int64_t n = n_tokens * cache.n_kv_heads * per_head;
  if (warp >= 2 * n) return;
  const bool keys = warp < n;
  const int64_t i = keys ? warp : warp - n;
  const int64_t token = i / (cache.n_kv_heads * per_head), head = i / per_head % cache.n_kv_heads;
  const int64_t j = i % per_head * 32 + threadIdx.x % 32;
  const bool inside = j < cache.head_dim;
  const int64_t cache_head = sequences[token] * cache.n_kv_heads + head;
  const float* row = (keys ? k : v) + (token * cache.n_kv_heads + head) * cache.head_dim;
  const float x = inside ? row[j] : 0.0f;
  if (keys) {
    put(cache.type_k, x, inside, key_place(cache, cache_head, positions[token], j));
  } else {
    put(cache.type_v, x, inside, value_place(cache, cache_head, positions[token], j));
  }
}

}  // namespace

void kv_store(const CacheView& cache, const float* k, const float* v, const int32_t* positions, const int32_t* sequences, int64_t n_tokens,
              cudaStream_t stream) {
  const int64_t n_threads = 2 * n_tokens * cache.n_kv_heads * ((cache.head_dim + 31) / 32) * 32;
  constexpr int kThreads = 128;
  if (n_threads == 0) return;
  store_kernel<<<static_cast<unsigned>((n_threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(cache, k, v, positions, sequences,
                                                                                                      n_tokens);
}

}  // namespace assay::backend::cuda
