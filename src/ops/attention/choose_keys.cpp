// See choose_keys.h. One source for both arithmetics: they differ in the scores' sums alone.
#include "ops/attention/choose_keys.h"

#include <algorithm>
#include <limits>
#include <string>

#include "num/math.h"
#include "ops/attention/attention.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

float multiply_add(float a, float b, float c) noexcept { return num::fma(a, b, c); }
double multiply_add(double a, double b, double c) noexcept { return a * b + c; }

template <class T>
T score_of(const T* q, const T* weights, const T* key, int64_t n_heads, int64_t head_dim) noexcept {
  T score = 0;
  for (int64_t head = 0; head < n_heads; ++head) {
    T dot = 0;
    for (int64_t j = 0; j < head_dim; ++j) dot = multiply_add(q[head * head_dim + j], key[j], dot);
    if (weights == nullptr) return dot;
    score = multiply_add(weights[head], T{0} > dot ? T{0} : dot, score);
  }
  return score;
}

template <class T>
void choose_rows(const ChooseKeys& op, const HostRows<T>& rows, const CachedRun<T>& at, int64_t begin,
                 int64_t end) noexcept {
  const int64_t n_chosen = rows.width(op.y);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t n = rows.positions[static_cast<size_t>(t)] + int64_t{1};
    T* y = rows.row(op.y, t);
    if (n <= n_chosen) {
      choose_all(n, n_chosen, y);
      continue;
    }
    const T* weights = op.weights == kNone ? nullptr : rows.row(op.weights, t);
    for (int64_t p = 0; p < n; ++p)
      at.scratch[p] = score_of(rows.row(op.q, t), weights, at.keys + p * at.k_stride, op.n_heads, op.head_dim);
    choose_by(op, at.scratch, n, n_chosen, at.order, y);
  }
}

}  // namespace

float index_score_ref(const float* q, const float* weights, const float* key, int64_t n_heads,
                      int64_t head_dim) noexcept {
  return score_of(q, weights, key, n_heads, head_dim);
}
double index_score_ref(const double* q, const double* weights, const double* key, int64_t n_heads,
                       int64_t head_dim) noexcept {
  return score_of(q, weights, key, n_heads, head_dim);
}

template <class T>
void choose_all(int64_t n, int64_t n_chosen, T* y) noexcept {
  for (int64_t i = 0; i < n_chosen; ++i) y[i] = static_cast<T>(i < n ? i : -1);
}

template <class T>
void choose_best(const T* scores, int64_t n, int64_t n_chosen, int32_t* order, T* y) noexcept {
  if (n <= n_chosen) return choose_all(n, n_chosen, y);
  for (int64_t p = 0; p < n; ++p) {
    order[p] = static_cast<int32_t>(p);
    if (!(scores[p] == scores[p])) return std::fill_n(y, n_chosen, std::numeric_limits<T>::quiet_NaN()), void();
  }
  // Positions differ, so the order is total and the set of the first n_chosen is one.
  std::nth_element(order, order + n_chosen, order + n,
                   [scores](int32_t a, int32_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  std::sort(order, order + n_chosen);
  for (int64_t i = 0; i < n_chosen; ++i) y[i] = static_cast<T>(order[i]);
}

template <class T>
int64_t pool_blocks(T* scores, int64_t n, const ChooseKeys& op) noexcept {
  const int64_t n_blocks = (n + op.n_block - 1) / op.n_block;
  for (int64_t block = 0; block < n_blocks; ++block) {
    T best = scores[block * op.n_block];
    for (int64_t p = block * op.n_block; p < std::min(n, (block + 1) * op.n_block); ++p)
      best = best >= scores[p] || !(best == best) ? best : scores[p];  // a NaN stays
    scores[block] = best;
  }
  for (int64_t block = std::max(int64_t{0}, n_blocks - op.n_local); block < n_blocks; ++block)
    if (scores[block] == scores[block]) scores[block] = std::numeric_limits<T>::infinity();
  return n_blocks;
}

template <class T>
void choose_by(const ChooseKeys& op, T* scores, int64_t n, int64_t n_chosen, int32_t* order, T* y) noexcept {
  if (op.n_block == 1 || n <= n_chosen) return choose_best(scores, n, n_chosen, order, y);
  const int64_t n_best = n_chosen / op.n_block;
  choose_best(scores, pool_blocks(scores, n, op), n_best, order, y);
  if (!(y[0] == y[0])) return std::fill_n(y, n_chosen, y[0]), void();
  std::fill_n(y, n_chosen, T{-1});
  T* next = y;
  for (int64_t i = 0; i < n_best; ++i) {  // order has the chosen blocks, ascending
    const int64_t first = order[i] * op.n_block;
    for (int64_t p = first; p < std::min(n, first + op.n_block); ++p) *next++ = static_cast<T>(p);
  }
}

template int64_t pool_blocks(float*, int64_t, const ChooseKeys&) noexcept;
template int64_t pool_blocks(double*, int64_t, const ChooseKeys&) noexcept;
template void choose_by(const ChooseKeys&, float*, int64_t, int64_t, int32_t*, float*) noexcept;
template void choose_by(const ChooseKeys&, double*, int64_t, int64_t, int32_t*, double*) noexcept;
template void choose_all(int64_t, int64_t, float*) noexcept;
template void choose_all(int64_t, int64_t, double*) noexcept;
template void choose_best(const float*, int64_t, int64_t, int32_t*, float*) noexcept;
template void choose_best(const double*, int64_t, int64_t, int32_t*, double*) noexcept;

void ChooseKeys::check(const CheckScope& s) const {
  const CacheLayer& of = s.cache_layer(layer);
  if (n_heads < 1 || head_dim < 1)
    s.refuse(std::to_string(n_heads) + " index heads of " + std::to_string(head_dim) + " elements");
  s.expect(of.n_kv_heads, 1, "heads of index keys");
  s.expect(of.head_dim, head_dim, "elements of an index key");
  s.expect(s.width(q), n_heads * head_dim, "columns");
  if (weights == kNone) {
    s.expect(n_heads, 1, "index heads without weights");
  } else {
    s.expect(s.width(weights), n_heads, "weights of index heads");
  }
  if (n_block < 1 || n_local < 0 || s.width(y) % n_block != 0)
    s.refuse("blocks of " + std::to_string(n_block) + " in a choice of " + std::to_string(s.width(y)) + " keys");
  if (s.domain(q) != RowDomain::tokens) s.refuse("a choice for selected tokens alone");
  if (s.width(y) < 1 || s.width(y) > kKeysChosenMax) s.refuse("a choice of " + std::to_string(s.width(y)) + " keys");
  if (s.plan().n_ctx_max < 1 || s.plan().n_ctx_max > kChoicePositionsMax)
    s.refuse("a choice among more than " + std::to_string(kChoicePositionsMax) + " positions");
  if (!s.plan().causal) s.refuse("a choice among later keys");
}

void ChooseKeys::shard(ShardScope& s) const {
  ChooseKeys part = *this;
  part.q = s.whole_of(q), part.weights = weights == kNone ? kNone : s.whole_of(weights), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork ChooseKeys::work(const WorkScope& s) const {
  const auto [n_tokens, n_past, n_outputs, n_sequences] = s.shape();
  int64_t n_pairs = 0, n_keys = 0;  // of a token and a key that it scores; keys that any token scores
  for (int64_t n = n_past + 1; n <= n_past + n_tokens; ++n) {
    if (n <= s.width(y)) continue;
    n_pairs += n, n_keys = n;
  }
  return {.bytes = n_sequences * n_keys * cache_row_bytes(s.options().cache_k, head_dim),
          .multiply_adds = n_sequences * n_pairs * n_heads * head_dim};
}

void ChooseKeys::run(const HostRows<float>& rows, const CachedRun<float>& at, int64_t begin,
                     int64_t end) const noexcept {
  choose_rows(*this, rows, at, begin, end);
}
void ChooseKeys::run(const HostRows<double>& rows, const CachedRun<double>& at, int64_t begin,
                     int64_t end) const noexcept {
  choose_rows(*this, rows, at, begin, end);
}

}  // namespace assay::ops
