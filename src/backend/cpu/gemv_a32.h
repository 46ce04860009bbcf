// Matrix-vector products of the formats with blocks of 32, shared by the instruction sets: the floats of contract dot/1 over 8 lanes. Included
// by kernel files only; everything here is local to the file that includes it. What differs comes in as the class Format:
//   kBlockBytes, kHasMin     of the format
//   kOffset                  integers are stored as weight + kOffset
//   Scales scales(p)         of the 8 blocks p
//   dots<n>(p, q, out)       the exact sums of 8 blocks against n columns, in the order of lanes
#pragma once

#include <immintrin.h>

#include "backend/cpu/gemv_prepare.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kPrefetchBytes = 3072;  // ahead of the row; where reads from memory were fastest

struct Scales {
  __m256 d, m;
};

// The first 4 bytes of 8 blocks.
struct Heads {
  __m128i lanes0, lanes4;
};

inline __m128i load_heads4(const std::byte* const* p) noexcept {
  const auto head = [&](int lane) {
    int32_t bytes;
    __builtin_memcpy(&bytes, p[lane], 4);
    return bytes;
  };
  __m128i v = _mm_cvtsi32_si128(head(0));
  v = _mm_insert_epi32(v, head(1), 1);
  v = _mm_insert_epi32(v, head(2), 2);
  return _mm_insert_epi32(v, head(3), 3);
}

inline Heads load_heads(const std::byte* const* p) noexcept { return {load_heads4(p), load_heads4(p + 4)}; }

// d in the first two bytes.
inline __m256 half_scales(const Heads& h) noexcept {
  const __m128i mask = _mm_set1_epi32(0xFFFF);
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm_and_si128(h.lanes0, mask), _mm_and_si128(h.lanes4, mask)));
}

// A second half-precision number behind it.
inline __m256 half_minima(const Heads& h) noexcept {
  return _mm256_cvtph_ps(_mm_packus_epi32(_mm_srli_epi32(h.lanes0, 16), _mm_srli_epi32(h.lanes4, 16)));
}

// 2^(e - 128) of the first byte, as MXFP4 has it; subnormal for 0 and 1.
inline __m256 power_scales(const Heads& h) noexcept {
  const __m256i e = _mm256_and_si256(_mm256_set_m128i(h.lanes4, h.lanes0), _mm256_set1_epi32(0xFF));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

struct OneScale {
  static constexpr bool kHasMin = false;
  static Scales scales(const std::byte* const* p) noexcept { return {half_scales(load_heads(p)), _mm256_setzero_ps()}; }
};

struct ScaleAndMin {
  static constexpr bool kHasMin = true;
  static Scales scales(const std::byte* const* p) noexcept {
    const Heads heads = load_heads(p);
    return {half_scales(heads), half_minima(heads)};
  }
};

struct PowerScale {
  static constexpr bool kHasMin = false;
  static Scales scales(const std::byte* const* p) noexcept { return {power_scales(load_heads(p)), _mm256_setzero_ps()}; }
};

// Section 2.4 of the contract over the chunks c0..c7.
inline float tree(__m256 c) noexcept {
  const __m256 pairs = _mm256_hadd_ps(c, c);
  const __m256 fours = _mm256_hadd_ps(pairs, pairs);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

// F of section 2.2 for one token from the sums of its planes.
template <int kPlanes, int kOffset>
inline __m256 plane_sum(const __m256i* dots, const int32_t* sums) noexcept {
  __m256 f[kPlanes];
  for (int plane = 0; plane < kPlanes; ++plane) {
    __m256i dot = dots[plane];
    if constexpr (kOffset != 0) {
      const __m256i sum = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums + plane * kLanes));
      dot = _mm256_sub_epi32(dot, _mm256_mullo_epi32(sum, _mm256_set1_epi32(kOffset)));
    }
    f[plane] = _mm256_cvtepi32_ps(dot);
  }
  if constexpr (kPlanes == 2) return _mm256_fmadd_ps(_mm256_set1_ps(0x1p-7f), f[1], f[0]);
  return f[0];
}

// One step: the terms t of 8 blocks and the chains c of every token.
template <class Format, int kPlanes, int kTokens>
inline void gemv_a32_step(const std::byte* const* p, const GemvOperand& x, int64_t step, __m256* c) noexcept {
  constexpr int kColumns = kPlanes * kTokens;
  __m256i dots[kColumns];
  Format::template dots<kColumns>(p, x.q + step * kColumns * 256, dots);
  const Scales scales = Format::scales(p);
  for (int t = 0; t < kTokens; ++t) {
    const int64_t at = (step * kTokens + t) * kLanes;
    const __m256 f = plane_sum<kPlanes, Format::kOffset>(dots + t * kPlanes, x.sums + at * kPlanes);
    __m256 term;
    if constexpr (Format::kHasMin) {
      term = _mm256_fmadd_ps(scales.d, f, _mm256_mul_ps(scales.m, _mm256_load_ps(x.g + at)));
    } else {
      term = _mm256_mul_ps(scales.d, f);
    }
    c[t] = _mm256_fmadd_ps(_mm256_load_ps(x.d + at), term, c[t]);
  }
}

template <class Format, int kPlanes, int kTokens>
void gemv_a32(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin, int64_t row_end) noexcept {
  const GemvChain& chain = x.chain;
  const __m256 last_mask = _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(chain.last_mask)));
  for (int64_t r = row_begin; r < row_end; ++r) {
    const std::byte* row = task.weights + r * task.row_bytes;
    __m256 c[kTokens];
    for (int t = 0; t < kTokens; ++t) c[t] = _mm256_setzero_ps();
    const std::byte* p[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) p[lane] = row + chain.first[lane] * Format::kBlockBytes;
    for (int64_t step = 0; step < chain.full_steps; ++step) {
      for (int64_t b = 0; b < kLanes * Format::kBlockBytes; b += 64) {
        _mm_prefetch(row + step * kLanes * Format::kBlockBytes + kPrefetchBytes + b, _MM_HINT_T0);
      }
      gemv_a32_step<Format, kPlanes, kTokens>(p, x, step, c);
      for (int lane = 0; lane < kLanes; ++lane) p[lane] += Format::kBlockBytes;
    }
    if (chain.steps != chain.full_steps) {
      __m256 next[kTokens];
      for (int t = 0; t < kTokens; ++t) next[t] = c[t];
      for (int lane = 0; lane < kLanes; ++lane) p[lane] = row + chain.last[lane] * Format::kBlockBytes;
      gemv_a32_step<Format, kPlanes, kTokens>(p, x, chain.full_steps, next);
      for (int t = 0; t < kTokens; ++t) c[t] = _mm256_blendv_ps(c[t], next[t], last_mask);
    }
    for (int t = 0; t < kTokens; ++t) {
      const float dot = tree(c[t]);
      task.y.data[(token + t) * task.y.stride + r] = task.bias == nullptr ? dot : dot + task.bias[r];
    }
  }
}

// The instance for the operand's planes and tokens.
template <class Format>
void gemv_a32_any(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin, int64_t row_end) noexcept {
  if (x.planes == 2) {
    if (x.tokens == 2) return gemv_a32<Format, 2, 2>(task, x, token, row_begin, row_end);
    return gemv_a32<Format, 2, 1>(task, x, token, row_begin, row_end);
  }
  if (x.tokens == 4) return gemv_a32<Format, 1, 4>(task, x, token, row_begin, row_end);
  if (x.tokens == 2) return gemv_a32<Format, 1, 2>(task, x, token, row_begin, row_end);
  return gemv_a32<Format, 1, 1>(task, x, token, row_begin, row_end);
}

}  // namespace
}  // namespace assay::backend::cpu
