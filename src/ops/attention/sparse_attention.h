// Attention over chosen keys: of each token those that a row of choices names (ops/attention/choose_keys.h), for all
// heads the same.
//
//   y[t, h] = sum_i softmax(scale * q[t, h] . k[p_i]) v[p_i]      over the chosen positions p_0 < p_1 < ..
//
// Bits: those of attention (ops/attention/attention.h) over the list of chosen keys as if the i-th of them stood at
// position i: segments are 256 entries of the list, and the lane of an entry is its place in it. Where every visible
// key is chosen this is attention, bit by bit. A row that begins with a NaN gives NaN.
//
// Why the list and not the positions: a token then costs what it chooses, whatever lies between, and a kernel may
// gather the keys and be the one that there is.
//
// Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct SparseAttention {
  ValueId q;
  ValueId chosen;
  int32_t layer;  // of the cache
  int64_t n_heads, n_kv_heads, head_dim;
  double scale;
  ValueId y;  // n_heads times the width of the cache's values

  static constexpr const char* kKind = "sparse_attention";
  static constexpr Role kRole = Role::cached;
  void fields(FieldVisitor& f) { f.reads(q), f.reads(chosen), f.cache_layer(layer), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, const CachedRun<float>& at, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, const CachedRun<double>& at, int64_t begin, int64_t end) const noexcept;
};

}  // namespace assay::ops
