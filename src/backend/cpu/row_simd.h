// Kernels of the ops that work token by token, written once over Vec (simd.h). Contracts: ops/<op>.h.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/math_simd.h"
#include "backend/cpu/simd.h"

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

static void gate_silu(const float* gate, const float* up, int64_t n, float* y) noexcept {
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) store(y + j, mul(silu(load(gate + j)), load(up + j)));
  if (j < n) store_first(y + j, mul(silu(load_first(gate + j, n - j)), load_first(up + j, n - j)), n - j);
}

static void gate_gelu_tanh(const float* gate, const float* up, int64_t n, float* y) noexcept {
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) store(y + j, mul(gelu_tanh(load(gate + j)), load(up + j)));
  if (j < n) store_first(y + j, mul(gelu_tanh(load_first(gate + j, n - j)), load_first(up + j, n - j)), n - j);
}

// Rotates pairs (i, i + dim / 2); the interleaved kind goes through shuffles of its own.
static void rope(const float* x, const float* cos, const float* sin, int64_t dim, bool interleaved, int64_t head_dim, float* y) noexcept {
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
  std::byte* tile = head.k + position / 32 * head.k_tile_bytes;
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
    to_half(v, head.v_dim, reinterpret_cast<uint16_t*>(head.v + position * head.v_row_bytes));
  } else {
    ops::cache_encode_ref(head.type_v, v, head.v_dim, scratch);
    put_value(head, position, scratch);
  }
}

}  // namespace
}  // namespace assay::backend::cpu
