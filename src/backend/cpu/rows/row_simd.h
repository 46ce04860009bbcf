// Kernels of the ops that work token by token, written once over Vec (simd.h). Contracts: ops/<op>.h.
//
//   a row   | 16 | 16 | 16 | 16 | ..     16 elements a Vec, in order; the tail by load_first and store_first
//   sums    two Vec are the 32 lanes of Lanes32, element j in lane j % 32; folded 16, 8, 4, 2, 1
#pragma once

#include "backend/cpu/rows/activations_simd.h"
#include "backend/cpu/rows/math_simd.h"
#include "backend/cpu/sets/kernels.h"
#include "backend/cpu/sets/simd.h"

namespace assay::backend::cpu {
namespace {

static void rms_norm(const float* x, const float* w, float eps, int64_t d, float* y) noexcept {
  Vec low = splat(0.0f), high = splat(0.0f);  // Lanes32; a lane beyond the row adds 0 * 0 to a sum that is never -0
  int64_t j = 0;
  for (; j + 32 <= d; j += 32) {
    const Vec a = load(x + j), b = load(x + j + 16);
    low = fma(a, a, low);
    high = fma(b, b, high);
  }
  const int64_t left = d - j;
  if (left > 0) {
    const Vec a = load_first(x + j, left < 16 ? left : 16);
    low = fma(a, a, low);
  }
  if (left > 16) {
    const Vec b = load_first(x + j + 16, left - 16);
    high = fma(b, b, high);
  }
  const Vec r = splat(1.0f / square_root(fold(low, high) / static_cast<float>(d) + eps));
  for (j = 0; j + 16 <= d; j += 16) store(y + j, mul(mul(load(x + j), r), load(w + j)));
  if (j < d) store_first(y + j, mul(mul(load_first(x + j, d - j), r), load_first(w + j, d - j)), d - j);
}

static void add_rows(const float* a, const float* b, int64_t n, float* y) noexcept {
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) store(y + j, add(load(a + j), load(b + j)));
  if (j < n) store_first(y + j, add(load_first(a + j, n - j), load_first(b + j, n - j)), n - j);
}

// Sixteen elements after sixteen: each(place, n) with n = 16, and what is left in the end.
template <class Each>
static inline void by_sixteen(int64_t n, const Each& each) noexcept {
  int64_t j = 0;
  for (; j + 16 <= n; j += 16)
    each(
        j, [](const float* x) { return load(x); }, [](float* y, Vec v) { store(y, v); });
  const int64_t left = n - j;
  if (left > 0)
    each(
        j, [=](const float* x) { return load_first(x, left); }, [=](float* y, Vec v) { store_first(y, v, left); });
}

template <ops::ActivationFunction function>
static void gate_rows(const float* gate, const float* up, int64_t n, float* y) noexcept {
  by_sixteen(n,
             [=](int64_t j, auto from, auto to) { to(y + j, mul(activate<function>(from(gate + j)), from(up + j))); });
}

template <ops::ActivationFunction function>
static void activate_rows(const float* x, int64_t n, float* y) noexcept {
  by_sixteen(n, [=](int64_t j, auto from, auto to) { to(y + j, activate<function>(from(x + j))); });
}

static void clamped_gate(const float* gate, const float* up, float alpha, float limit, int64_t n, float* y) noexcept {
  const Vec a = splat(alpha), most = splat(limit), least = splat(-limit);
  by_sixteen(n, [=](int64_t j, auto from, auto to) {
    const Vec g = smaller(most, from(gate + j)), u = greater(least, smaller(most, from(up + j)));
    to(y + j, mul(mul(g, sigmoid(mul(a, g))), add(u, splat(1.0f))));
  });
}

static void softcap_rows(const float* x, float limit, int64_t n, float* y) noexcept {
  const Vec most = splat(limit);
  by_sixteen(n, [=](int64_t j, auto from, auto to) { to(y + j, softcap(from(x + j), most)); });
}

static void expert_sum(const float* x, const float* weights, int64_t n_used, int64_t d, float* y) noexcept {
  by_sixteen(d, [=](int64_t j, auto from, auto to) {
    Vec sum = from(x + j);
    if (weights != nullptr) sum = mul(splat(weights[0]), sum);
    for (int64_t i = 1; i < n_used; ++i) {
      const Vec of_rank = from(x + i * d + j);
      sum = weights != nullptr ? fma(splat(weights[i]), of_rank, sum) : add(sum, of_rank);
    }
    to(y + j, sum);
  });
}

static void layer_norm(const float* x, const float* w, const float* bias, float eps, int64_t d, float* y) noexcept {
  const auto in_lanes = [=](auto&& take) {  // Lanes32; what lies beyond the row adds +0
    Vec low = splat(0.0f), high = splat(0.0f);
    int64_t j = 0;
    for (; j + 32 <= d; j += 32) low = take(load(x + j), low, 16), high = take(load(x + j + 16), high, 16);
    const int64_t left = d - j;
    if (left > 0) low = take(load_first(x + j, left < 16 ? left : 16), low, left);
    if (left > 16) high = take(load_first(x + j + 16, left - 16), high, left - 16);
    return fold(low, high) / static_cast<float>(d);
  };
  const Vec mean = splat(in_lanes([](Vec v, Vec sum, int64_t) { return add(sum, v); }));
  const float variance = in_lanes([=](Vec v, Vec sum, int64_t n) {
    const Vec c = n < 16 ? within(sub(v, mean), 0, n, splat(0.0f)) : sub(v, mean);
    return fma(c, c, sum);
  });
  const Vec r = splat(1.0f / square_root(variance + eps));
  by_sixteen(d, [=](int64_t j, auto from, auto to) {
    Vec value = mul(sub(from(x + j), mean), r);
    if (w != nullptr) value = mul(value, from(w + j));
    to(y + j, bias != nullptr ? add(value, from(bias + j)) : value);
  });
}

// Rotates pairs (i, i + dim / 2); the interleaved kind goes through shuffles of its own.
static void rope(const float* x, const float* cos, const float* sin, int64_t dim, bool interleaved, int64_t head_dim,
                 float* y) noexcept {
  const int64_t half = dim / 2;
  int64_t i = 0;
  if (interleaved) {
    for (; i + 16 <= half; i += 16) {
      const Pair both = unzip(load(x + 2 * i), load(x + 2 * i + 16));
      const Vec c = load(cos + i), s = load(sin + i);
      const Pair turned = zip(fma(both.first, c, negate(mul(both.second, s))), fma(both.first, s, mul(both.second, c)));
      store(y + 2 * i, turned.first);
      store(y + 2 * i + 16, turned.second);
    }
  } else {
    for (; i + 16 <= half; i += 16) {
      const Vec a = load(x + i), b = load(x + i + half), c = load(cos + i), s = load(sin + i);
      store(y + i, fma(a, c, negate(mul(b, s))));
      store(y + i + half, fma(a, s, mul(b, c)));
    }
  }
  for (; i < half; ++i) {
    const int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
    const float x_a = x[a], x_b = x[b];
    y[a] = num::fma(x_a, cos[i], -(x_b * sin[i]));
    y[b] = num::fma(x_a, sin[i], x_b * cos[i]);
  }
  for (int64_t j = dim; j < head_dim; ++j) y[j] = x[j];
}

// Moves one stored row, element by element, into its lane of a key tile.
template <class Element>
static inline void scatter(const Element* row, int64_t n, std::byte* lane) noexcept {
  auto* place = reinterpret_cast<Element*>(lane);
  for (int64_t j = 0; j < n; ++j) place[j * 32] = row[j];
}

static void to_half(const float* x, int64_t n, uint16_t* y) noexcept {  // writes up to the next multiple of 16
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) store_half(y + j, load(x + j));
  if (j < n) store_half(y + j, load_first(x + j, n - j));
}

static void store_key(const CacheHead& head, int64_t position, const float* k, std::byte* scratch) noexcept {
  std::byte* tile = key_tile(head, position / 32);
  const int64_t lane = position % 32;
  if (head.type_k == ops::CacheType::f16) {
    auto* row = reinterpret_cast<uint16_t*>(scratch);
    to_half(k, head.head_dim, row);
    scatter(row, head.head_dim, tile + lane * 2);
  } else if (head.type_k == ops::CacheType::f32) {
    scatter(k, head.head_dim, tile + lane * 4);
  } else {
    ops::cache_encode_ref(head.type_k, k, head.head_dim, scratch);
    put_key(head, position, scratch);
  }
}

static void store_value(const CacheHead& head, int64_t position, const float* v, std::byte* scratch) noexcept {
  if (head.type_v == ops::CacheType::f16) {
    to_half(v, head.v_dim, reinterpret_cast<uint16_t*>(value_row(head, position)));
  } else {
    ops::cache_encode_ref(head.type_v, v, head.v_dim, scratch);
    put_value(head, position, scratch);
  }
}

}  // namespace
}  // namespace assay::backend::cpu
