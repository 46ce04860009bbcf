// Matrix-vector products of the formats with blocks of 32, shared by the instruction sets: the floats of contract dot/1 over 8 lanes. Included
// by kernel files only; everything here is local to the file that includes it. What differs comes in as the class Unpack:
//   kBlockBytes, kHasMin     of the format
//   kOffset                  integers are stored as weight + kOffset
//   Scales scales(p)         of the 8 blocks p
//   dots<n>(p, q, out)       the exact sums of 8 blocks against n columns, in the order of lanes
#pragma once

#include "backend/cpu/gemv_rows.h"

namespace assay::backend::cpu {
namespace {

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

template <class Unpack>
struct FormatA32 : Unpack {
  static int64_t block_bytes(const LinearTask&) noexcept { return Unpack::kBlockBytes; }
  template <int kPlanes, int kTokens>
  static void step(const LinearTask&, const GemvOperand& x, int64_t, const StepBlocks& blocks, __m256* c) noexcept {
    constexpr int kColumns = kPlanes * kTokens;
    __m256i dots[kColumns];
    Unpack::template dots<kColumns>(blocks.p, x.q + blocks.step * kColumns * 256, dots);
    const Scales scales = Unpack::scales(blocks.p);
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = (blocks.step * kTokens + t) * kLanes;
      if constexpr (Unpack::kOffset != 0) {
        for (int plane = 0; plane < kPlanes; ++plane) {
          const __m256i sum = _mm256_load_si256(reinterpret_cast<const __m256i*>(x.sums + at * kPlanes + plane * kLanes));
          __m256i& dot = dots[t * kPlanes + plane];
          dot = _mm256_sub_epi32(dot, _mm256_mullo_epi32(sum, _mm256_set1_epi32(Unpack::kOffset)));
        }
      }
      const __m256 f = join_planes<kPlanes>(dots + t * kPlanes);
      __m256 term;
      if constexpr (Unpack::kHasMin) {
        term = _mm256_fmadd_ps(scales.d, f, _mm256_mul_ps(scales.m, _mm256_load_ps(x.g + at)));
      } else {
        term = _mm256_mul_ps(scales.d, f);
      }
      c[t] = _mm256_fmadd_ps(_mm256_load_ps(x.d + at), term, c[t]);
    }
  }
};

}  // namespace
}  // namespace assay::backend::cpu
