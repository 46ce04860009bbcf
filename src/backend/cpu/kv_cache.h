// The CPU's KV cache: where keys and values lie. What they are when read back is said in ops/attention.h.
// Keys are stored in tiles of 32 positions, element-major, so that a kernel finds one element of 32 keys side by side; values are stored
// position by position. Each pair of layer and sequence has its n_ctx positions reserved, and memory is taken where it is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "ops/attention.h"
#include "ops/executor.h"
#include "ops/plan.h"

namespace assay::backend::cpu {

inline constexpr int64_t kKeyTile = 32;

// One KV head of one layer and sequence; a view into the KvCache.
//   Key tile i (positions 32 i .. 32 i + 31) begins at k + i * k_tile_bytes: f32 or f16 [head_dim][32]; q8_0: f16 scales
//   [head_dim / 32][32], then int8 [head_dim][32].
//   Value row t begins at v + t * v_row_bytes: f32 or f16 [v_cols]; q8_0: int8 [v_cols], its f16 scales [v_dim / 32] at v_scales.
//   v_cols is v_dim rounded up to 16; what lies beyond v_dim stays zero. Where values lie in the keys v_row_bytes is 0 and v leads nowhere.
struct CacheHead {
  ops::CacheType type_k = ops::CacheType::f16, type_v = ops::CacheType::f16;
  int64_t head_dim = 0, v_dim = 0, v_cols = 0;
  int64_t k_tile_bytes = 0, v_row_bytes = 0;
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  std::byte* v_scales = nullptr;
  bool values_in_keys() const noexcept { return v_row_bytes == 0; }
};

// Moves one position between its place in the cache and its natural order (cache_row_bytes of ops/attention.h).
void put_key(const CacheHead& head, int64_t position, const std::byte* row) noexcept;
void get_key(const CacheHead& head, int64_t position, std::byte* row) noexcept;
void put_value(const CacheHead& head, int64_t position, const std::byte* row) noexcept;
void get_value(const CacheHead& head, int64_t position, std::byte* row) noexcept;

class KvCache {
 public:
  KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options);

  CacheHead head(int64_t layer, int64_t sequence, int64_t kv_head) const noexcept;
  int64_t n_ctx() const noexcept { return n_ctx_; }
  size_t bytes() const noexcept { return memory_.size(); }
  // Layer by layer K, then V, of the first n_positions positions: position-major, heads ascending within a position.
  void visit(int64_t sequence, int64_t n_positions, const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  struct Layer {
    int64_t n_kv_heads = 0;
    CacheHead first;               // of sequence 0, KV head 0; offsets instead of pointers
    size_t k = 0, v = 0, v_scales = 0;  // where they begin in the memory
    size_t k_head_bytes = 0, v_head_bytes = 0, v_scales_head_bytes = 0;
  };
  std::vector<Layer> layers_;
  int64_t n_ctx_ = 0;
  ops::CacheType type_k_, type_v_;
  mutable base::AlignedBuffer memory_;
};

}  // namespace assay::backend::cpu
