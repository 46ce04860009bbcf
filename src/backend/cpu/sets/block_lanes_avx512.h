// Blocks side by side in the 128-bit parts of a register, by AVX-512 VNNI: four of them; the names of
// block_lanes_avx2.h. Included by kernel files only; everything here is local to the file that includes it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace assay::backend::cpu {
namespace {

using Wide = __m512i;
constexpr int kGroups = 2;        // registers for 8 lanes: lanes 0 4 1 5, and 2 6 3 7
constexpr int kReach = 256 * 64;  // bytes around a register that a displacement of one byte reaches
constexpr bool kStepsApart = false;

inline Wide load_wide(const void* p) noexcept { return _mm512_load_si512(p); }
// 16 bytes of each block of a group, at an offset. p: of the group's first lane.
inline Wide gather_wide(const std::byte* const* p, int64_t offset) noexcept {
  const auto at = [&](int lane) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p[lane] + offset)); };
  Wide v = _mm512_castsi128_si512(at(0));
  v = _mm512_inserti32x4(v, at(4), 1);
  v = _mm512_inserti32x4(v, at(1), 2);
  return _mm512_inserti32x4(v, at(5), 3);
}
inline Wide spread(__m128i x) noexcept { return _mm512_broadcast_i32x4(x); }
inline Wide zero_wide() noexcept { return _mm512_setzero_si512(); }
inline Wide all_bytes(int x) noexcept { return _mm512_set1_epi8(static_cast<char>(x)); }
inline Wide all_words(int x) noexcept { return _mm512_set1_epi16(static_cast<int16_t>(x)); }

inline Wide and_(Wide a, Wide b) noexcept { return _mm512_and_si512(a, b); }
inline Wide or_(Wide a, Wide b) noexcept { return _mm512_or_si512(a, b); }
inline Wide add_words(Wide a, Wide b) noexcept { return _mm512_add_epi16(a, b); }
inline Wide subtract_bytes(Wide a, Wide b) noexcept { return _mm512_sub_epi8(a, b); }
inline Wide subtract_words(Wide a, Wide b) noexcept { return _mm512_sub_epi16(a, b); }
inline Wide subtract_dwords(Wide a, Wide b) noexcept { return _mm512_sub_epi32(a, b); }
inline Wide low_words_of_products(Wide a, Wide b) noexcept { return _mm512_mullo_epi16(a, b); }
inline Wide shuffle_bytes(Wide x, Wide places) noexcept { return _mm512_shuffle_epi8(x, places); }
template <int kOrder>
inline Wide shuffle_dwords(Wide x) noexcept {
  return _mm512_shuffle_epi32(x, static_cast<_MM_PERM_ENUM>(kOrder));
}
inline Wide upper_bytes_as_words(Wide x) noexcept { return _mm512_unpackhi_epi8(x, zero_wide()); }
inline Wide shift_left_words(Wide x, int n) noexcept { return _mm512_slli_epi16(x, static_cast<unsigned>(n)); }
inline Wide shift_right_words(Wide x, int n) noexcept { return _mm512_srli_epi16(x, static_cast<unsigned>(n)); }
inline Wide shift_right_signed_words(Wide x, int n) noexcept { return _mm512_srai_epi16(x, static_cast<unsigned>(n)); }
inline Wide shift_left_dwords(Wide x, int n) noexcept { return _mm512_slli_epi32(x, static_cast<unsigned>(n)); }
inline Wide shift_left_dwords(Wide x, Wide n) noexcept { return _mm512_sllv_epi32(x, n); }
inline Wide shift_right_dwords(Wide x, int n) noexcept { return _mm512_srli_epi32(x, static_cast<unsigned>(n)); }
inline Wide shift_right_dwords(Wide x, Wide n) noexcept { return _mm512_srlv_epi32(x, n); }

// Sums of two products of unsigned and signed bytes, saturated.
inline Wide multiply_bytes(Wide w, Wide x) noexcept { return _mm512_maddubs_epi16(w, x); }
// sum + two products of words.
inline Wide add_products(Wide sum, Wide a, Wide b) noexcept { return _mm512_dpwssd_epi32(sum, a, b); }
inline Wide multiply_words(Wide a, Wide b) noexcept { return _mm512_madd_epi16(a, b); }
// w as the magnitude; x with the sign of w.
inline Wide magnitude(Wide w) noexcept { return _mm512_abs_epi8(w); }
inline Wide with_sign_of(Wide x, Wide w) noexcept {
  return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), zero_wide(), x);
}

// The sums of the 4 dwords of each block, in the order of lanes.
inline __m256i sums_of_blocks(const Wide* groups) noexcept {
  const Wide a = groups[0], b = groups[1];
  const Wide halves = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const Wide sums = _mm512_add_epi32(halves, _mm512_shuffle_epi32(halves, _MM_PERM_BADC));
  const Wide order = _mm512_castsi256_si512(_mm256_setr_epi32(0, 8, 1, 9, 4, 12, 5, 13));
  return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums));
}
// The first dword of each block, in the order of lanes.
inline __m256i first_dwords(const Wide* groups) noexcept {
  const Wide order = _mm512_castsi256_si512(_mm256_setr_epi32(0, 8, 16, 24, 4, 12, 20, 28));
  return _mm512_castsi512_si256(_mm512_permutex2var_epi32(groups[0], order, groups[1]));
}

}  // namespace
}  // namespace assay::backend::cpu
