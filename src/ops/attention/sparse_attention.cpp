// See sparse_attention.h.
#include "ops/attention/sparse_attention.h"

#include <algorithm>
#include <limits>
#include <string>

#include "num/math64.h"
#include "ops/attention/attention.h"
#include "ops/attention/choose_keys.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

struct HeadShape {
  int64_t head_dim, v_dim;
  double scale;
};

void attend(const HeadShape& of, const CachedRun<float>& at, const float* q, const float* keys, const float* values,
            const float* chosen, int64_t n, float* y) noexcept {
  attention_over_ref(q, {keys, at.n_positions, of.head_dim, at.k_stride},
                     {values, at.n_positions, of.v_dim, at.v_stride}, chosen, n, {static_cast<float>(of.scale)}, y);
}

void attend(const HeadShape& of, const CachedRun<double>& at, const double* q, const double* keys, const double* values,
            const double* chosen, int64_t n, double* y) noexcept {
  const auto row = [&](int64_t i, const double* from, int64_t stride) {
    return from + static_cast<int64_t>(chosen[i]) * stride;
  };
  for (int64_t i = 0; i < n; ++i) {
    const double* key = row(i, keys, at.k_stride);
    double sum = 0;
    for (int64_t j = 0; j < of.head_dim; ++j) sum += q[j] * key[j];
    at.scratch[i] = sum * of.scale;
  }
  const double m = *std::max_element(at.scratch, at.scratch + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += at.scratch[i] = num::exp64(at.scratch[i] - m);
  std::fill_n(y, of.v_dim, 0.0);
  for (int64_t i = 0; i < n; ++i) {
    const double* value = row(i, values, at.v_stride);
    for (int64_t j = 0; j < of.v_dim; ++j) y[j] += at.scratch[i] / sum * value[j];
  }
}

template <class T>
void attend_rows(const SparseAttention& op, const HostRows<T>& rows, const CachedRun<T>& at, int64_t begin,
                 int64_t end) noexcept {
  const HeadShape of{op.head_dim, rows.width(op.y) / op.n_heads, op.scale};
  const int64_t n_group = op.n_heads / op.n_kv_heads;
  for (int64_t t = begin; t < end; ++t) {
    const T* chosen = rows.row(op.chosen, t);
    T* y = rows.row(op.y, t);
    if (!(chosen[0] == chosen[0])) {
      std::fill_n(y, rows.width(op.y), std::numeric_limits<T>::quiet_NaN());
      continue;
    }
    const int64_t n = n_chosen_in(chosen, rows.width(op.chosen));
    for (int64_t head = 0; head < op.n_heads; ++head) {
      const int64_t kv_head = head / n_group;
      attend(of, at, rows.row(op.q, t) + head * op.head_dim, at.keys + kv_head * of.head_dim,
             at.values + kv_head * (at.values == at.keys ? of.head_dim : of.v_dim), chosen, n, y + head * of.v_dim);
    }
  }
}

}  // namespace

void SparseAttention::check(const CheckScope& s) const {
  const CacheLayer& of = s.cache_layer(layer);
  s.expect(of.n_kv_heads, n_kv_heads, "KV heads");
  s.expect(of.head_dim, head_dim, "elements of a head");
  if (s.domain(q) != RowDomain::tokens) s.refuse("attention of selected tokens alone");
  s.expect(s.width(q), n_heads * head_dim, "columns");
  s.expect(s.width(y), n_heads * of.v_dim(), "columns of the result");
  if (s.width(chosen) < 1) s.refuse("a choice of no keys");
  if (of.window != 0 || !s.plan().causal) s.refuse("a window, or later keys, beside a choice of keys");
  if (n_kv_heads <= 0 || head_dim <= 0 || n_heads % n_kv_heads != 0) {
    s.refuse(std::to_string(n_heads) + " heads over " + std::to_string(n_kv_heads) + " KV heads");
  }
}

// The cache stays whole in every shard, and so do the heads.
void SparseAttention::shard(ShardScope& s) const {
  SparseAttention part = *this;
  part.q = s.whole_of(q), part.chosen = s.whole_of(chosen), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork SparseAttention::work(const WorkScope& s) const {
  const auto [n_tokens, n_past, n_outputs, n_sequences] = s.shape();
  const CacheLayer& of = s.plan().cache_layers[static_cast<size_t>(layer)];
  int64_t n_pairs = 0;
  for (int64_t n = n_past + 1; n <= n_past + n_tokens; ++n) n_pairs += std::min(n, s.width(chosen));
  const int64_t n_keys = std::min(n_pairs, n_past + n_tokens);  // that are read: tokens may choose the same ones
  const int64_t bytes_per_key =
      cache_row_bytes(s.options().cache_k, head_dim) + cache_row_bytes(s.options().cache_v, of.stored_v_dim());
  return {.bytes = n_sequences * n_keys * n_kv_heads * bytes_per_key,
          .multiply_adds = n_sequences * n_pairs * n_heads * (head_dim + of.v_dim())};
}

void SparseAttention::run(const HostRows<float>& rows, const CachedRun<float>& at, int64_t begin,
                          int64_t end) const noexcept {
  attend_rows(*this, rows, at, begin, end);
}
void SparseAttention::run(const HostRows<double>& rows, const CachedRun<double>& at, int64_t begin,
                          int64_t end) const noexcept {
  attend_rows(*this, rows, at, begin, end);
}

}  // namespace assay::ops
