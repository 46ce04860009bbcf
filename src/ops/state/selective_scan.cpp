// See selective_scan.h.
#include "ops/state/selective_scan.h"

#include <string>

#include "num/lanes.h"
#include "num/math.h"
#include "num/math64.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

template <class T, class Token>
void scan_heads(const SelectiveScan& op, const HostRows<T>& rows, const StateRun<T>& at, int64_t begin, int64_t end,
                Token&& run) noexcept {
  const int64_t head_dim = rows.width(op.x) / op.n_heads, d_state = rows.width(op.b) / op.n_groups;
  for (int64_t head = begin; head < end; ++head) {
    for (int64_t t = at.begin; t < at.end; ++t) {
      const int64_t group = op.group(head) * d_state;
      run(t, head, rows.row(op.x, t) + head * head_dim, rows.row(op.b, t) + group, rows.row(op.c, t) + group,
          rows.row(op.dt, t)[head], at.state + head * head_dim * d_state, rows.row(op.y, t) + head * head_dim);
    }
  }
}

}  // namespace

void selective_scan_ref(const ScanToken& token, float* h, float* y) noexcept {
  for (int64_t p = 0; p < token.head_dim; ++p) {
    const float u = token.dt * token.x[p];
    float e = num::exp(token.dt * token.a[0]);
    num::Lanes32 sum;
    for (int64_t n = 0; n < token.d_state; ++n) {
      if (token.n_a > 1) e = num::exp(token.dt * token.a[n]);
      float& state = h[p * token.d_state + n];
      state = num::fma(state, e, u * token.b[n]);
      sum.fma(n, token.c[n], state);
    }
    y[p] = token.has_d ? num::fma(token.d, token.x[p], sum.fold()) : sum.fold();
  }
}

void SelectiveScan::check(const CheckScope& s) const {
  if (n_heads < 1 || n_groups < 1 || n_heads % n_groups != 0)
    s.refuse(std::to_string(n_heads) + " heads in " + std::to_string(n_groups) + " groups");
  const int64_t head_dim = s.width(x) / n_heads, d_state = s.width(b) / n_groups;
  s.expect(s.width(x), n_heads * head_dim, "columns");
  s.expect(s.width(y), s.width(x), "columns of the result");
  s.expect(s.width(dt), n_heads, "columns of dt");
  s.expect(s.width(b), n_groups * d_state, "columns of B");
  s.expect(s.width(c), s.width(b), "columns of C");
  s.expect_vector(a, s.elements(a) == n_heads ? n_heads : n_heads * d_state, "elements of A");
  s.expect_vector(d, n_heads, "elements of D");
  if (s.domain(x) != RowDomain::tokens) s.refuse("a state over selected tokens");
  s.expect(s.state(state).n_units, n_heads, "units of state");
  s.expect(s.state(state).unit_floats, head_dim * d_state, "floats of a unit of state");
}

void SelectiveScan::shard(ShardScope& s) const {
  SelectiveScan part = *this;
  part.x = s.whole_of(x), part.dt = s.whole_of(dt), part.b = s.whole_of(b), part.c = s.whole_of(c);
  part.a = s.whole_weight(a), part.d = s.whole_weight(d), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork SelectiveScan::work(const WorkScope& s) const {
  return {.bytes = s.weight_bytes(a) + s.weight_bytes(d) + s.state_bytes(state),
          .multiply_adds = s.n_rows(y) * 3 * s.plan().states[static_cast<size_t>(state)].n_floats()};
}

void SelectiveScan::run(const HostRows<float>& rows, const StateRun<float>& at, int64_t begin,
                        int64_t end) const noexcept {
  run_by(selective_scan_ref, rows, at, begin, end);
}

void SelectiveScan::run_by(decltype(&selective_scan_ref) token, const HostRows<float>& rows, const StateRun<float>& at,
                           int64_t begin, int64_t end) const noexcept {
  const int64_t head_dim = rows.width(x) / n_heads, d_state = rows.width(b) / n_groups;
  const int64_t n_a = rows.plan->weights[static_cast<size_t>(a)].view.shape.elements() / n_heads;
  scan_heads(*this, rows, at, begin, end,
             [&](int64_t, int64_t head, const float* of_x, const float* of_b, const float* of_c, float of_dt, float* h,
                 float* out) {
               const float* skip = rows.small(d);
               token({of_x, of_b, of_c, rows.small(a) + head * n_a, of_dt, skip == nullptr ? 0.0f : skip[head],
                      skip != nullptr, n_a, head_dim, d_state},
                     h, out);
             });
}

void SelectiveScan::run(const HostRows<double>& rows, const StateRun<double>& at, int64_t begin,
                        int64_t end) const noexcept {
  const int64_t head_dim = rows.width(x) / n_heads, d_state = rows.width(b) / n_groups;
  const int64_t n_a = rows.plan->weights[static_cast<size_t>(a)].view.shape.elements() / n_heads;
  scan_heads(*this, rows, at, begin, end,
             [&](int64_t, int64_t head, const double* of_x, const double* of_b, const double* of_c, double of_dt,
                 double* h, double* out) {
               const float *skip = rows.small(d), *of_a = rows.small(a) + head * n_a;
               for (int64_t p = 0; p < head_dim; ++p) {
                 double sum = 0;
                 for (int64_t n = 0; n < d_state; ++n) {
                   double& now = h[p * d_state + n];
                   now =
                       now * num::exp64(of_dt * static_cast<double>(of_a[n_a > 1 ? n : 0])) + of_dt * of_x[p] * of_b[n];
                   sum += of_c[n] * now;
                 }
                 out[p] = skip == nullptr ? sum : sum + static_cast<double>(skip[head]) * of_x[p];
               }
             });
}

}  // namespace assay::ops
