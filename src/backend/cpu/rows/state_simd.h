// Kernels of the ops that keep a state, written once over Vec (simd.h). Contracts: ops/state/causal_conv.h,
// ops/state/delta_rule.h, ops/state/selective_scan.h.
//
//   causal_conv     a unit's 32 columns are two Vec; the weights of each of the K rows are put side by side first
//   delta_rule      32 columns of S abreast (two Vec), down its rows twice: decay and S'k, then the correction and S'q
//   selective_scan  Lanes32 over the state of one p: two Vec, 32 elements of h at a time
#pragma once

#include "backend/cpu/rows/math_simd.h"
#include "backend/cpu/sets/kernels.h"
#include "backend/cpu/sets/simd.h"

namespace assay::backend::cpu {
namespace {

static void causal_conv(const float* x, int64_t n_tokens, int64_t stride, const float* w, const float* bias,
                        int64_t kernel, int64_t n, float* state, float* y) noexcept {
  constexpr int64_t d = ops::kConvColumns;
  float by_row[ops::kConvKernelMax * d] = {}, biases[d] = {};
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t k = 0; k < kernel; ++k) by_row[k * d + c] = w[c * kernel + k];
    if (bias != nullptr) biases[c] = bias[c];
  }
  const int64_t n_low = n < 16 ? n : 16, n_high = n - n_low, n_kept = kernel - 1;
  for (int64_t t = 0; t < n_tokens; ++t) {
    const Vec x_low = load_first(x + t * stride, n_low),
              x_high = n_high > 0 ? load_first(x + t * stride + 16, n_high) : splat(0.0f);
    Vec low = splat(0.0f), high = splat(0.0f);
    for (int64_t k = 0; k < n_kept; ++k) {
      low = fma(load(by_row + k * d), load(state + k * d), low);
      high = fma(load(by_row + k * d + 16), load(state + k * d + 16), high);
    }
    low = fma(load(by_row + n_kept * d), x_low, low);
    high = fma(load(by_row + n_kept * d + 16), x_high, high);
    if (bias != nullptr) low = add(low, load(biases)), high = add(high, load(biases + 16));
    store_first(y + t * stride, low, n_low);
    if (n_high > 0) store_first(y + t * stride + 16, high, n_high);
    if (n_kept == 0) continue;
    for (int64_t k = 0; k + 1 < n_kept; ++k)
      store(state + k * d, load(state + (k + 1) * d)), store(state + k * d + 16, load(state + (k + 1) * d + 16));
    store(state + (n_kept - 1) * d, x_low);
    store(state + (n_kept - 1) * d + 16, x_high);
  }
}

// Some columns of S, n_vecs times 16 of them, of which the last Vec may have fewer: from and to know.
template <int n_vecs, class From, class To>
static inline void delta_columns(const float* q, const float* k, const float* v, const float* decay, int64_t decay_step,
                                 float strength, int64_t d_k, int64_t d_v, float* s, float* y, const From& from,
                                 const To& to) noexcept {
  Vec d[n_vecs], o[n_vecs];
  for (int i = 0; i < n_vecs; ++i) d[i] = o[i] = splat(0.0f);
  for (int64_t row = 0; row < d_k; ++row) {
    const Vec e = splat(decay[row * decay_step]), key = splat(k[row]);
    for (int i = 0; i < n_vecs; ++i) {
      const Vec x = mul(from(s + row * d_v + 16 * i), e);
      to(s + row * d_v + 16 * i, x);
      d[i] = fma(x, key, d[i]);
    }
  }
  for (int i = 0; i < n_vecs; ++i) d[i] = mul(splat(strength), sub(from(v + 16 * i), d[i]));
  for (int64_t row = 0; row < d_k; ++row) {
    const Vec key = splat(k[row]), query = splat(q[row]);
    for (int i = 0; i < n_vecs; ++i) {
      const Vec x = fma(key, d[i], from(s + row * d_v + 16 * i));
      to(s + row * d_v + 16 * i, x);
      o[i] = fma(x, query, o[i]);
    }
  }
  for (int i = 0; i < n_vecs; ++i) to(y + 16 * i, o[i]);
}

static void delta_rule(const float* q, const float* k, const float* v, const float* decay, int64_t n_decay,
                       float strength, int64_t d_k, int64_t d_v, float* s, float* y) noexcept {
  const auto from = [](const float* x) { return load(x); };
  const auto to = [](float* at, Vec x) { store(at, x); };
  const int64_t step = n_decay == 1 ? 0 : 1;
  int64_t j = 0;
  for (; j + 32 <= d_v; j += 32) delta_columns<2>(q, k, v + j, decay, step, strength, d_k, d_v, s + j, y + j, from, to);
  for (; j + 16 <= d_v; j += 16) delta_columns<1>(q, k, v + j, decay, step, strength, d_k, d_v, s + j, y + j, from, to);
  const int64_t left = d_v - j;
  if (left == 0) return;
  delta_columns<1>(
      q, k, v + j, decay, step, strength, d_k, d_v, s + j, y + j, [=](const float* x) { return load_first(x, left); },
      [=](float* at, Vec x) { store_first(at, x, left); });
}

static void selective_scan(const ops::ScanToken& token, float* h, float* y) noexcept {
  const Vec dt = splat(token.dt);
  const int64_t n_all = token.d_state;
  const Vec one_decay = exp(mul(dt, splat(token.a[0])));
  for (int64_t p = 0; p < token.head_dim; ++p, h += n_all) {
    const Vec u = splat(token.dt * token.x[p]);
    const auto step = [&](int64_t n, Vec sum, auto from, auto to) {
      const Vec e = token.n_a > 1 ? exp(mul(dt, from(token.a + n))) : one_decay;
      const Vec now = fma(from(h + n), e, mul(u, from(token.b + n)));
      to(h + n, now);
      return fma(from(token.c + n), now, sum);
    };
    const auto whole = [](const float* x) { return load(x); };
    const auto keep = [](float* at, Vec x) { store(at, x); };
    Vec low = splat(0.0f), high = splat(0.0f);  // Lanes32
    int64_t n = 0;
    for (; n + 32 <= n_all; n += 32) low = step(n, low, whole, keep), high = step(n + 16, high, whole, keep);
    const auto some = [&](int64_t first, Vec sum) {
      const int64_t left = n_all - first < 16 ? n_all - first : 16;
      const Vec next = step(
          first, sum, [=](const float* x) { return load_first(x, left); },
          [=](float* at, Vec x) { store_first(at, x, left); });
      return within(next, 0, left, sum);
    };
    if (n < n_all) low = some(n, low);
    if (n + 16 < n_all) high = some(n + 16, high);
    const float sum = fold(low, high);
    y[p] = token.has_d ? __builtin_fmaf(token.d, token.x[p], sum) : sum;
  }
}

}  // namespace
}  // namespace assay::backend::cpu
