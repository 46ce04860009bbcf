// The device's KV cache: where keys and values lie. What they are when read back is said in ops/attention/attention.h.
// Keys lie in tiles of 32 positions, 16 bytes of one key beside the same 16 bytes of the next, so that a warp reads 32 keys in whole lines;
// values lie position by position. Each pair of layer and sequence has its n_ctx positions reserved.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/cuda/runtime/device_memory.h"
#include "ops/attention/attention.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

inline constexpr int kKeyTile = 32;   // positions
inline constexpr int kPieceBytes = 16;  // of a key

// One layer of all sequences; the head `h` of sequence `s` is head s * n_kv_heads + h.
//   Key tile i of a head begins at k + head * k_head_bytes + i * k_tile_bytes: pieces [n_pieces][32][16 bytes]; q8_0: then f16 scales
//   [head_dim / 32][32].
//   Value row t of a head begins at v + head * v_head_bytes + t * v_row_bytes; q8_0: int8 [v_dim], then its f16 scales [v_dim / 32].
struct CacheView {
  ops::CacheType type_k = ops::CacheType::f16, type_v = ops::CacheType::f16;
  int64_t n_kv_heads = 0, head_dim = 0, n_pieces = 0;
  int64_t v_dim = 0;            // elements of a value
  bool values_in_keys = false;  // they are the first of its key: nothing lies at v
  int64_t k_tile_bytes = 0, k_head_bytes = 0, v_row_bytes = 0, v_head_bytes = 0;
  std::byte* k = nullptr;
  std::byte* v = nullptr;
};

class KvCache {
 public:
  KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options);

  const CacheView& layer(int64_t i) const noexcept { return layers_[static_cast<size_t>(i)]; }
  size_t bytes() const noexcept { return memory_.size(); }
  static size_t bytes_needed(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options);
  // Layer by layer K, then V, of the first n_positions positions: position-major, heads ascending within a position, rows as
  // ops::cache_row_bytes has them.
  void visit(int64_t sequence, int64_t n_positions, const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  int64_t n_ctx_ = 0;
  std::vector<CacheView> layers_;
  DeviceBuffer memory_;
};

// Writes the keys and values of the batch's tokens into the cache. k, v f32 [n_tokens, n_kv_heads * head_dim or v_dim];
// v null where values lie in keys.
void kv_store(const CacheView& cache, const float* k, const float* v, const int32_t* positions, const int32_t* sequences, int64_t n_tokens,
              cudaStream_t stream);

}  // namespace assay::backend::cuda
