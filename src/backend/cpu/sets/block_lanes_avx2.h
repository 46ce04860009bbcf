// Blocks side by side in the 128-bit parts of a register, by AVX2: two of them. block_lanes_avx512.h offers the same
// names; the matrix-vector kernels are written once over them. Included by kernel files only; everything here is local
// to the file that includes it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace assay::backend::cpu {
namespace {

using Wide = __m256i;
constexpr int kGroups = 4;   // registers for 8 lanes: group g holds lanes g and g + 4
constexpr int kReach = 256;  // bytes around a register that a displacement of one byte reaches
// A step is a function of its own: in each loop it would fill what keeps decoded instructions.
constexpr bool kStepsApart = true;

inline Wide load_wide(const void* p) noexcept { return _mm256_load_si256(static_cast<const Wide*>(p)); }
// 16 bytes of each block of a group, at an offset. p: of the group's first lane.
inline Wide gather_wide(const std::byte* const* p, int64_t offset) noexcept {
  const auto at = [&](int lane) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p[lane] + offset)); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(at(0)), at(4), 1);
}
inline Wide spread(__m128i x) noexcept { return _mm256_broadcastsi128_si256(x); }
inline Wide zero_wide() noexcept { return _mm256_setzero_si256(); }
inline Wide all_bytes(int x) noexcept { return _mm256_set1_epi8(static_cast<char>(x)); }
inline Wide all_words(int x) noexcept { return _mm256_set1_epi16(static_cast<int16_t>(x)); }

inline Wide and_(Wide a, Wide b) noexcept { return _mm256_and_si256(a, b); }
inline Wide or_(Wide a, Wide b) noexcept { return _mm256_or_si256(a, b); }
inline Wide add_words(Wide a, Wide b) noexcept { return _mm256_add_epi16(a, b); }
inline Wide subtract_bytes(Wide a, Wide b) noexcept { return _mm256_sub_epi8(a, b); }
inline Wide subtract_words(Wide a, Wide b) noexcept { return _mm256_sub_epi16(a, b); }
inline Wide subtract_dwords(Wide a, Wide b) noexcept { return _mm256_sub_epi32(a, b); }
inline Wide low_words_of_products(Wide a, Wide b) noexcept { return _mm256_mullo_epi16(a, b); }
inline Wide shuffle_bytes(Wide x, Wide places) noexcept { return _mm256_shuffle_epi8(x, places); }
template <int kOrder>
inline Wide shuffle_dwords(Wide x) noexcept {
  return _mm256_shuffle_epi32(x, kOrder);
}
inline Wide upper_bytes_as_words(Wide x) noexcept { return _mm256_unpackhi_epi8(x, zero_wide()); }
inline Wide shift_left_words(Wide x, int n) noexcept { return _mm256_slli_epi16(x, n); }
inline Wide shift_right_words(Wide x, int n) noexcept { return _mm256_srli_epi16(x, n); }
inline Wide shift_right_signed_words(Wide x, int n) noexcept { return _mm256_srai_epi16(x, n); }
inline Wide shift_left_dwords(Wide x, int n) noexcept { return _mm256_slli_epi32(x, n); }
inline Wide shift_left_dwords(Wide x, Wide n) noexcept { return _mm256_sllv_epi32(x, n); }
inline Wide shift_right_dwords(Wide x, int n) noexcept { return _mm256_srli_epi32(x, n); }
inline Wide shift_right_dwords(Wide x, Wide n) noexcept { return _mm256_srlv_epi32(x, n); }

// Sums of two products of unsigned and signed bytes, saturated.
inline Wide multiply_bytes(Wide w, Wide x) noexcept { return _mm256_maddubs_epi16(w, x); }
// sum + two products of words.
inline Wide add_products(Wide sum, Wide a, Wide b) noexcept { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
inline Wide multiply_words(Wide a, Wide b) noexcept { return _mm256_madd_epi16(a, b); }
// w as the magnitude; x with the sign of w.
inline Wide magnitude(Wide w) noexcept { return _mm256_abs_epi8(w); }
inline Wide with_sign_of(Wide x, Wide w) noexcept { return _mm256_sign_epi8(x, w); }

// The sums of the 4 dwords of each block, in the order of lanes.
inline __m256i sums_of_blocks(const Wide* groups) noexcept {
  return _mm256_hadd_epi32(_mm256_hadd_epi32(groups[0], groups[1]), _mm256_hadd_epi32(groups[2], groups[3]));
}
// The first dword of each block, in the order of lanes.
inline __m256i first_dwords(const Wide* groups) noexcept {
  return _mm256_unpacklo_epi64(_mm256_unpacklo_epi32(groups[0], groups[1]),
                               _mm256_unpacklo_epi32(groups[2], groups[3]));
}

}  // namespace
}  // namespace assay::backend::cpu
