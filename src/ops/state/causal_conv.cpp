// See causal_conv.h.
#include "ops/state/causal_conv.h"

#include <algorithm>
#include <string>

#include "num/lanes.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

float conv_step(float w, float x, float sum) noexcept { return num::fma(w, x, sum); }
double conv_step(float w, double x, double sum) noexcept { return sum + static_cast<double>(w) * x; }

template <class T>
void conv_unit(const T* x, int64_t n_tokens, int64_t stride, const float* w, const float* bias, int64_t kernel,
               int64_t n, T* state, T* y) noexcept {
  const int64_t n_kept = kernel - 1;
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t c = 0; c < n; ++c) {
      T sum = 0;
      for (int64_t k = 0; k < n_kept; ++k) sum = conv_step(w[c * kernel + k], state[k * kConvColumns + c], sum);
      sum = conv_step(w[c * kernel + n_kept], x[t * stride + c], sum);
      y[t * stride + c] = bias == nullptr ? sum : sum + static_cast<T>(bias[c]);
    }
    if (n_kept == 0) continue;
    std::copy(state + kConvColumns, state + n_kept * kConvColumns, state);
    std::copy_n(x + t * stride, n, state + (n_kept - 1) * kConvColumns);
  }
}

template <class T, class Unit>
void conv_units(const CausalConv& op, const HostRows<T>& rows, const StateRun<T>& at, int64_t begin, int64_t end,
                Unit&& run) noexcept {
  const int64_t d = rows.width(op.y), kernel = rows.plan->weights[static_cast<size_t>(op.w)].view.shape.elements() / d;
  const float *w = rows.small(op.w), *bias = rows.small(op.bias);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit * kConvColumns;
    run(rows.row(op.x, at.begin) + first, at.end - at.begin, d, w + first * kernel,
        bias == nullptr ? nullptr : bias + first, kernel, std::min(kConvColumns, d - first),
        at.state + unit * (kernel - 1) * kConvColumns, rows.row(op.y, at.begin) + first);
  }
}

}  // namespace

void causal_conv_ref(const float* x, int64_t n_tokens, int64_t stride, const float* w, const float* bias,
                     int64_t kernel, int64_t n, float* state, float* y) noexcept {
  conv_unit(x, n_tokens, stride, w, bias, kernel, n, state, y);
}

void CausalConv::check(const CheckScope& s) const {
  const int64_t d = s.width(x);
  s.expect(s.width(y), d, "columns");
  if (s.domain(x) != RowDomain::tokens) s.refuse("a convolution over selected tokens");
  if (d < 1 || s.elements(w) % d != 0 || s.elements(w) / d > kConvKernelMax)
    s.refuse(std::to_string(s.elements(w)) + " weights for " + std::to_string(d) + " columns");
  s.expect_vector(w, s.elements(w), "weights");
  s.expect_vector(bias, d, "biases");
  const StateLayer needed = state_of(d, s.elements(w) / d);
  s.expect(s.state(state).n_units, needed.n_units, "units of state");
  s.expect(s.state(state).unit_floats, needed.unit_floats, "floats of a unit of state");
}

void CausalConv::shard(ShardScope& s) const {
  CausalConv part = *this;
  part.x = s.whole_of(x), part.w = s.whole_weight(w), part.bias = s.whole_weight(bias), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork CausalConv::work(const WorkScope& s) const {
  const int64_t n_weights = s.plan().weights[static_cast<size_t>(w)].view.shape.elements();
  return {.bytes = s.weight_bytes(w) + s.weight_bytes(bias) + s.state_bytes(state),
          .multiply_adds = s.n_rows(y) * n_weights};
}

void CausalConv::run(const HostRows<float>& rows, const StateRun<float>& at, int64_t begin,
                     int64_t end) const noexcept {
  run_by(causal_conv_ref, rows, at, begin, end);
}
void CausalConv::run_by(decltype(&causal_conv_ref) unit, const HostRows<float>& rows, const StateRun<float>& at,
                        int64_t begin, int64_t end) const noexcept {
  conv_units(*this, rows, at, begin, end, unit);
}
void CausalConv::run(const HostRows<double>& rows, const StateRun<double>& at, int64_t begin,
                     int64_t end) const noexcept {
  conv_units(*this, rows, at, begin, end, conv_unit<double>);
}

}  // namespace assay::ops
