// Which keys a token's queries see: the "lightning indexer". Beside its keys and values a layer keeps one short
// index key for every position; some index heads score it, and the best positions are chosen.
//
//   score(t, p) = sum over heads h of weights[t, h] * relu(q[t, h] . k[p])      over p <= t
//   y[t] = the positions of the largest scores, as many as y is wide
//
// The lower position comes first among equals; y has them ascending, and -1 in the places that are left. Where no
// more are visible all of them are chosen, whatever their scores. Positions are whole numbers, as floats: a context
// ends before 2^24.
//
// By blocks (n_block > 1), for one head alone: without weights the score is q . k itself. A block is n_block positions
// that follow each other, the first one at 0; its score is the largest of its visible keys'. The best blocks are chosen
// in place of keys, the n_local last ones always, and y has the visible positions in them.
//
// Bits: q . k is a chain of fma(q[j], k[j], .) over j ascending from +0, k as read back (ops/attention/attention.h);
// relu(x) is 0 where 0 > x, else x; the sum is a chain of fma(weights[h], relu, .) over h ascending from +0. The
// positive factor that papers and models multiply scores by changes no choice and is left out. Where a choice is to
// be made and a score is a NaN, all of y is NaN, and so is what attends to it (ops/attention/sparse_attention.h). So
// a token's row depends on its own rows and the index keys up to its position alone.
//
// Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1; Hugging Face transformers, modeling_deepseek_v32 and, by
// blocks, modeling_minimax_m3_vl.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct ChooseKeys {
  ValueId q;        // [n_heads head_dim]
  ValueId weights;  // [n_heads]; kNone: of one head, without a ReLU
  int32_t layer;    // of the cache: one KV head of head_dim, keys alone
  int64_t n_heads, head_dim;
  ValueId y;  // as wide as keys are chosen at most
  int64_t n_block = 1, n_local = 0;

  static constexpr const char* kKind = "choose_keys";
  static constexpr Role kRole = Role::cached;
  void fields(FieldVisitor& f) {
    f.reads(q);
    if (weights != kNone) f.reads(weights);
    f.cache_layer(layer), f.writes(y);
  }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, const CachedRun<float>& at, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, const CachedRun<double>& at, int64_t begin, int64_t end) const noexcept;
};

inline constexpr int64_t kKeysChosenMax = 65536;
inline constexpr int64_t kChoicePositionsMax = int64_t{1} << 24;  // whole numbers that a float holds

// The score of one index key; weights null: of the only head, without a ReLU.
float index_score_ref(const float* q, const float* weights, const float* key, int64_t n_heads,
                      int64_t head_dim) noexcept;
double index_score_ref(const double* q, const double* weights, const double* key, int64_t n_heads,
                       int64_t head_dim) noexcept;

// The choice of the token at position n - 1 from its n scores, into n_chosen places. order: memory for n.
template <class T>
void choose_best(const T* scores, int64_t n, int64_t n_chosen, int32_t* order, T* y) noexcept;
// The same where no choice is to be made: n <= n_chosen.
template <class T>
void choose_all(int64_t n, int64_t n_chosen, T* y) noexcept;

// Scores of blocks from those of n keys, in their place; how many blocks there are.
template <class T>
int64_t pool_blocks(T* scores, int64_t n, const ChooseKeys& op) noexcept;
// choose_best for the op, keys or blocks; what stood in scores is lost.
template <class T>
void choose_by(const ChooseKeys& op, T* scores, int64_t n, int64_t n_chosen, int32_t* order, T* y) noexcept;

// Of a row of choices: how many positions it has.
template <class T>
int64_t n_chosen_in(const T* row, int64_t width) noexcept {
  int64_t n = 0;
  while (n < width && !(row[n] < 0)) ++n;
  return n;
}

}  // namespace assay::ops
