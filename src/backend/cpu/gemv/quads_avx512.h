// Four blocks of 32 side by side in AVX-512 registers, for the matrix-vector kernels. Included by kernel files only;
// everything here is local to the file that includes it.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace assay::backend::cpu {
namespace {

// Elements 0..15 and 16..31 of four blocks, one block per 128 bits.
struct Quad {
  __m512i first, second;
};

inline Quad split_nibbles(__m512i bytes) noexcept {
  const __m512i mask = _mm512_set1_epi8(15);
  return {_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask)};
}

inline Quad look_up(Quad quad, __m128i levels) noexcept {
  const __m512i table = _mm512_broadcast_i32x4(levels);
  return {_mm512_shuffle_epi8(table, quad.first), _mm512_shuffle_epi8(table, quad.second)};
}

// What IQ4_NL's integers stand for, 128 added.
inline __m128i levels_iq4_nl() noexcept {
  const __m128i levels = _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
  return _mm_xor_si128(levels, _mm_set1_epi8(-128));
}

// What MXFP4's integers stand for, kOffsetMxfp4 added.
constexpr int kOffsetMxfp4 = 12;
inline __m128i levels_mxfp4() noexcept {
  const __m128i levels = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  return _mm_add_epi8(levels, _mm_set1_epi8(kOffsetMxfp4));
}

// Adds the products of a quad and 128 bytes of activations: first halves of its blocks, then their second halves.
inline __m512i add_dot(__m512i sum, const Quad& w, const int8_t* q) noexcept {
  return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, w.first, _mm512_load_si512(q)), w.second,
                             _mm512_load_si512(q + 64));
}

}  // namespace
}  // namespace assay::backend::cpu
