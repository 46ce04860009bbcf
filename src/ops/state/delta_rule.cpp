// See delta_rule.h.
#include "ops/state/delta_rule.h"

#include <algorithm>
#include <string>

#include "num/lanes.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

float delta_step(float a, float b, float c) noexcept { return num::fma(a, b, c); }
double delta_step(double a, double b, double c) noexcept { return a * b + c; }

// Some columns at a time, so that S is walked along its rows.
constexpr int64_t kDeltaColumns = 16;

template <class T>
void delta_token(const T* q, const T* k, const T* v, const T* decay, int64_t n_decay, T strength, int64_t d_k,
                 int64_t d_v, T* s, T* y) noexcept {
  for (int64_t first = 0; first < d_v; first += kDeltaColumns) {
    const int64_t n = std::min(kDeltaColumns, d_v - first);
    T d[kDeltaColumns] = {}, o[kDeltaColumns] = {};
    for (int64_t i = 0; i < d_k; ++i) {
      const T e = decay[n_decay == 1 ? 0 : i];
      T* row = s + i * d_v + first;
      for (int64_t j = 0; j < n; ++j) {
        row[j] = row[j] * e;
        d[j] = delta_step(row[j], k[i], d[j]);
      }
    }
    for (int64_t j = 0; j < n; ++j) d[j] = strength * (v[first + j] - d[j]);
    for (int64_t i = 0; i < d_k; ++i) {
      T* row = s + i * d_v + first;
      for (int64_t j = 0; j < n; ++j) {
        row[j] = delta_step(k[i], d[j], row[j]);
        o[j] = delta_step(row[j], q[i], o[j]);
      }
    }
    std::copy_n(o, n, y + first);
  }
}

template <class T, class Token>
void delta_heads(const DeltaRule& op, const HostRows<T>& rows, const StateRun<T>& at, int64_t begin, int64_t end,
                 Token&& run) noexcept {
  const int64_t d_k = rows.width(op.k) / op.n_key_heads, d_v = rows.width(op.v) / op.n_heads,
                n_decay = rows.width(op.decay) / op.n_heads;
  for (int64_t head = begin; head < end; ++head) {
    const int64_t key = op.key_head(head) * d_k;
    for (int64_t t = at.begin; t < at.end; ++t) {
      run(rows.row(op.q, t) + key, rows.row(op.k, t) + key, rows.row(op.v, t) + head * d_v,
          rows.row(op.decay, t) + head * n_decay, n_decay, rows.row(op.strength, t)[head], d_k, d_v,
          at.state + head * d_k * d_v, rows.row(op.y, t) + head * d_v);
    }
  }
}

}  // namespace

void delta_rule_ref(const float* q, const float* k, const float* v, const float* decay, int64_t n_decay, float strength,
                    int64_t d_k, int64_t d_v, float* s, float* y) noexcept {
  delta_token(q, k, v, decay, n_decay, strength, d_k, d_v, s, y);
}

void DeltaRule::check(const CheckScope& s) const {
  if (n_heads < 1 || n_key_heads < 1 || n_heads % n_key_heads != 0)
    s.refuse(std::to_string(n_heads) + " heads over " + std::to_string(n_key_heads) + " of keys");
  const int64_t d_k = s.width(k) / n_key_heads, d_v = s.width(v) / n_heads;
  s.expect(s.width(k), n_key_heads * d_k, "columns of the keys");
  s.expect(s.width(q), s.width(k), "columns of the queries");
  s.expect(s.width(v), n_heads * d_v, "columns of the values");
  s.expect(s.width(y), s.width(v), "columns of the result");
  s.expect(s.width(strength), n_heads, "columns of the strength");
  if (s.width(decay) != n_heads) s.expect(s.width(decay), n_heads * d_k, "columns of the decay");
  if (s.domain(q) != RowDomain::tokens) s.refuse("a state over selected tokens");
  s.expect(s.state(state).n_units, n_heads, "units of state");
  s.expect(s.state(state).unit_floats, d_k * d_v, "floats of a unit of state");
}

void DeltaRule::shard(ShardScope& s) const {
  DeltaRule part = *this;
  part.q = s.whole_of(q), part.k = s.whole_of(k), part.v = s.whole_of(v), part.decay = s.whole_of(decay),
  part.strength = s.whole_of(strength);
  part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork DeltaRule::work(const WorkScope& s) const {
  return {.bytes = s.state_bytes(state),
          .multiply_adds = s.n_rows(y) * 4 * s.plan().states[static_cast<size_t>(state)].n_floats()};
}

void DeltaRule::run(const HostRows<float>& rows, const StateRun<float>& at, int64_t begin, int64_t end) const noexcept {
  run_by(delta_rule_ref, rows, at, begin, end);
}
void DeltaRule::run_by(decltype(&delta_rule_ref) token, const HostRows<float>& rows, const StateRun<float>& at,
                       int64_t begin, int64_t end) const noexcept {
  delta_heads(*this, rows, at, begin, end, token);
}
void DeltaRule::run(const HostRows<double>& rows, const StateRun<double>& at, int64_t begin,
                    int64_t end) const noexcept {
  delta_heads(*this, rows, at, begin, end, delta_token<double>);
}

}  // namespace assay::ops
