// Attention of one query head over the cache: the contract, in code. How a backend lays out its cache is its own
// affair; what a key or value is when read back is defined here.
//
//   y[j] = sum_p softmax(scale * q . k[p])[p] * v[p, j]   over the visible positions p
//
// Visible to a query at position t: every p <= t of its sequence; in a layer with a window only those with t - p <
//   window, in one with chunks only those of the same chunk. Where attention is not causal (an encoder's): every p of
//   its sequence; in a layer with a window those with |t - p| <= window / 2.
// Bits (numerics contract, section 5):
//   Read back: keys and values are what the cache stores, also for tokens of the running batch. f32: themselves; f16:
//     rounded to nearest even, widened exactly; q8_0: blocks of 32 elements quantised as A32 with one plane (section
//     1), the scale rounded to f16, the value is scale * q, one rounding. Where values lie in the keys
//     (CacheLayer::values_in_keys) a value is the first elements of its key as read back.
//   Score: chain of fma(q[j], k[j], .) over j ascending from +0; then * scale, one rounding; then num::softcap, where
//     there is one.
//   Segment: 256 positions, aligned to absolute position. Over its visible keys: m = maximum of the scores that are
//     numbers (-infinity if there is none); p = exp(s - m); l = sum of the p, key at position t in lane t % 32
//     (Lanes32), folded; o[j] = chain of fma(p, v[j], .) over keys ascending from +0. A masked key takes no part in any
//     of these.
//   Segments ascending, the first visible one as it is, each further one (m', l', o') merged by: M = max(m, m'), a =
//     exp(m - M), b = exp(m' - M), l = fma(l, a, l' * b), o = fma(o, a, o' * b), m = M.
//   A sink z, where there is one, is merged last, as a segment with m' = z, l' = 1 and no values: l = fma(l, a, b), o =
//     o * a.
//   y = o / l.
//   So a row's bits depend on its query, its position and its visible keys alone. A NaN among a query's scores makes
//     all its outputs NaN.
// Why one chain a score: keys lie side by side in a SIMD register, no fold is needed, and a query's row of scores is
//   one column block of a matrix product whose inner sum is never split.
// Source: Vaswani et al. 2017, arXiv:1706.03762; merging of partial softmax: Milakov and Gimelshein 2018,
// arXiv:1805.02867.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "tensor/view.h"

namespace assay::ops {

struct Attention {
  ValueId q;
  int32_t layer;  // of the cache
  int64_t n_heads, n_kv_heads, head_dim;
  double scale;
  int64_t window;          // 0: none
  ValueId y;               // n_heads times the width of the cache's values
  double softcap = 0;      // 0: none; else a score s becomes softcap * tanh(s / softcap)
  WeightId sinks = kNone;  // [n_heads]: one more logit of each head, with no value
  int64_t chunk = 0;       // 0: none; else only keys of the same block of so many positions are visible
  bool causal = true;      // false: later positions are visible too, and a window reaches half its width to either side

  static constexpr const char* kKind = "attention";
  static constexpr Role kRole = Role::attention;
  void fields(FieldVisitor& f) { f.reads(q), f.cache_layer(layer), f.writes(y), f.vector(sinks); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
};

inline constexpr int64_t kAttentionSegment = 256;

// First and last position visible to the query at `position` of a sequence of n_positions.
constexpr int64_t first_visible(int64_t position, int64_t window) noexcept {
  return window > 0 && position >= window ? position - window + 1 : 0;
}
constexpr int64_t first_visible(int64_t position, const Attention& op) noexcept {
  if (!op.causal) return op.window > 0 && position > op.window / 2 ? position - op.window / 2 : 0;
  const int64_t in_window = first_visible(position, op.window),
                in_chunk = op.chunk > 0 ? position / op.chunk * op.chunk : 0;
  return in_window > in_chunk ? in_window : in_chunk;
}

constexpr int64_t last_visible(int64_t position, int64_t n_positions, const Attention& op) noexcept {
  if (op.causal) return position;
  return op.window > 0 && position + op.window / 2 < n_positions ? position + op.window / 2 : n_positions - 1;
}

// What is done with the scores of one query head.
struct ScoreRule {
  float scale = 1.0f;
  float softcap = 0.0f;         // 0: none
  const float* sink = nullptr;  // null: none
};

// One query head. keys and values: row p is position p, as read back; rows first .. last are visible. y: as many floats
// as a value has, must not overlap q.
void attention_ref(const float* q, tensor::ConstMat keys, tensor::ConstMat values, int64_t first, int64_t last,
                   const ScoreRule& rule, float* y) noexcept;
// The same over n rows of keys and values, row_of[i] being what stands at position i.
void attention_over_ref(const float* q, tensor::ConstMat keys, tensor::ConstMat values, const float* row_of, int64_t n,
                        const ScoreRule& rule, float* y) noexcept;

// How one head's key or value of one position is stored, and read back. q8_0: head_dim / 32 blocks as in a GGUF file,
// an f16 scale and then 32 integers each.
int64_t cache_row_bytes(CacheType type, int64_t head_dim) noexcept;
void cache_encode_ref(CacheType type, const float* x, int64_t head_dim, std::byte* row) noexcept;
void cache_decode_ref(CacheType type, const std::byte* row, int64_t head_dim, float* x) noexcept;

}  // namespace assay::ops
