// A superblock of 256 of 16 rows for the AVX-512 matrix-matrix kernels, with the rows as the 16 lanes of a register.
// Included by kernel files only; everything here is local to the file that includes it.
//   The K-quants are transposed as they lie in the file, 4 bytes of every row to a register, and unpacked there, where
//     one instruction serves 16 rows;
// of the other formats each row is unpacked first (unpack_a256.h).
#pragma once

#include <cstddef>

#include "backend/cpu/gemm/gemm_avx512.h"
#include "backend/cpu/gemv/unpack_a256.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

inline __m512i bytes_of(int value) noexcept { return _mm512_set1_epi8(static_cast<char>(value)); }

// The low or the high halves of the dwords as numbers of half precision.
inline __m512 low_halves(__m512i dwords) noexcept { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords)); }
inline __m512 high_halves(__m512i dwords) noexcept { return low_halves(_mm512_srli_epi32(dwords, 16)); }

// 4 bytes of a dword as two pairs of words: bytes 0 and 1, then 2 and 3.
template <bool kSigned>
inline void widen_bytes(__m512i bytes, __m512i* pairs) noexcept {
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 1, 0, 4, 0, 5, 0, 8, 0, 9, 0, 12, 0, 13));
  for (int i = 0; i < 2; ++i) {  // each to the upper byte of its word, then down
    const __m512i words = _mm512_maskz_shuffle_epi8(0xAAAAAAAAAAAAAAAA, bytes, _mm512_add_epi8(order, bytes_of(2 * i)));
    pairs[i] = kSigned ? _mm512_srai_epi16(words, 8) : _mm512_srli_epi16(words, 8);
  }
}

// The pairs of bits and the nibbles of 4 bytes, for the 4 groups of 32 elements of a half.
inline void split_pairs(__m512i bytes, __m512i* w) noexcept {
  for (int i = 0; i < 4; ++i)
    w[i] = _mm512_and_si512(i == 0 ? bytes : _mm512_srli_epi16(bytes, static_cast<unsigned>(2 * i)), bytes_of(3));
}
inline void split_nibbles(__m512i first, __m512i second, __m512i* w) noexcept {
  w[0] = _mm512_and_si512(first, bytes_of(15));
  w[1] = _mm512_and_si512(_mm512_srli_epi16(first, 4), bytes_of(15));
  w[2] = _mm512_and_si512(second, bytes_of(15));
  w[3] = _mm512_and_si512(_mm512_srli_epi16(second, 4), bytes_of(15));
}

// What the columns of a format have, of 16 rows:
//   scale_pairs, min_pairs   integer scales and minima, words of two neighbouring sub-blocks
//   d, m                     as Format::scales
//   weights(put)             calls put(i, w) with elements 4i .. 4i + 3 of every row, as weight + kStored
template <class Format>
struct ColumnsOf {
  static constexpr int kSubs = 256 / Format::kSubBlock, kStored = Format::kSigned ? 128 : Format::kOffset;

  ColumnsOf(const LinearTask& task, const std::byte* const* p) noexcept {
    __m256i scale[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      const auto block = Format::open(task, p[i]);
      scale[i] = Format::sub_scales(block).scale;
      for (int half = 0; half < 2; ++half) {
        __m256i w[4];
        Format::unpack(block, half, w);
        for (int j = 0; j < 4; ++j)
          bytes[4 * half + j][i] = Format::kSigned ? _mm256_xor_si256(w[j], _mm256_set1_epi8(-128)) : w[j];
      }
    }
    __m512i pairs[8];  // of groups of 16
    transpose_16([&](int i) { return scale[i]; }, pairs);
    for (int i = 0; i < kSubs / 2; ++i) {
      scale_pairs[i] = kSubs == 16 ? pairs[i] : _mm512_mask_blend_epi16(0xAAAAAAAA, pairs[2 * i], pairs[2 * i + 1]);
    }
    d = _mm512_insertf32x8(_mm512_castps256_ps512(Format::scales(task, p).d), Format::scales(task, p + kLanes).d, 1);
  }

  template <class Put>
  void weights(const Put& put) const noexcept {
    for (int j = 0; j < 8; ++j) {
      __m512i w[8];
      transpose_16([&](int i) { return bytes[j][i]; }, w);
      for (int i = 0; i < 8; ++i) put(8 * j + i, w[i]);
    }
  }

  static_assert(!Format::kHasMin);
  __m256i bytes[8][kRows];
  __m512i scale_pairs[kSubs / 2], min_pairs[1];
  __m512 d, m = _mm512_setzero_ps();
};

// The dword of a block that begins with byte `offset`.
constexpr int dword_at(size_t offset) noexcept { return static_cast<int>(offset / 4); }

// The K-quants, with the dwords of the block as registers, after its whole parts of 16 bytes kMoreParts that overlap
// them: Of::weights_at(dwords, half, j, w) gives elements 4j .. 4j + 3 of the 4 groups of 32 in a half.
template <class Of, class B, int kSubs, int kMoreParts>
struct KColumns {
  using Block = B;
  static constexpr int kWholeParts = sizeof(Block) / 16, kMore = 4 * kWholeParts, kDwords = kMore + 4 * kMoreParts;
  static constexpr int64_t kLast16 = sizeof(Block) - 16;  // where the 16 bytes begin that end the block

  void transpose(const std::byte* const* p, int n_parts) noexcept {
    for (int i = 0; i < n_parts; ++i) transpose_dwords(p, 16 * i, dwords + 4 * i);
  }

  template <class Put>
  void weights(const Put& put) const noexcept {
    for (int half = 0; half < 2; ++half) {
      for (int j = 0; j < 8; ++j) {
        __m512i w[4];
        Of::weights_at(dwords, half, j, w);
        for (int i = 0; i < 4; ++i) put(32 * half + 8 * i + j, w[i]);
      }
    }
  }

  // The 12 bytes in which Q4_K and Q5_K pack scales and minima; as packed_scales.h.
  void unpack_k_scales(const __m512i* packed) noexcept {
    static_assert(sizeof(Block::sub_scales) == 12);
    const __m512i low6 = bytes_of(0x3F), low4 = bytes_of(0x0F), top2 = bytes_of(0x30);
    const auto upper = [&](__m512i nibbles, __m512i bits) {
      return _mm512_or_si512(_mm512_and_si512(nibbles, low4), _mm512_and_si512(_mm512_srli_epi16(bits, 2), top2));
    };
    widen_bytes<false>(_mm512_and_si512(packed[0], low6), scale_pairs);
    widen_bytes<false>(upper(packed[2], packed[0]), scale_pairs + 2);
    widen_bytes<false>(_mm512_and_si512(packed[1], low6), min_pairs);
    widen_bytes<false>(upper(_mm512_srli_epi16(packed[2], 4), packed[1]), min_pairs + 2);
  }

  __m512i dwords[kDwords];
  __m512i scale_pairs[kSubs / 2], min_pairs[kSubs / 2];
  __m512 d, m = _mm512_setzero_ps();
};

inline __m512 negative(__m512 v) noexcept { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }

template <>
struct ColumnsOf<UnpackQ2_K> : KColumns<ColumnsOf<UnpackQ2_K>, quant::BlockQ2_K, 16, 1> {
  static constexpr int kStored = 0, kPairs = dword_at(offsetof(Block, q));

  ColumnsOf(const LinearTask&, const std::byte* const* p) noexcept {
    static_assert(offsetof(Block, d) == sizeof(Block) - 4 && offsetof(Block, d_min) == sizeof(Block) - 2);
    constexpr int kScales = dword_at(offsetof(Block, sub_scales)), kFactors = kDwords - 1;
    transpose(p, kWholeParts);
    transpose_dwords(p, kLast16, dwords + kMore);  // its last dword is d and the factor of the minima
    for (int i = 0; i < 4; ++i) {
      widen_bytes<false>(_mm512_and_si512(dwords[kScales + i], bytes_of(15)), scale_pairs + 2 * i);
      widen_bytes<false>(_mm512_and_si512(_mm512_srli_epi16(dwords[kScales + i], 4), bytes_of(15)), min_pairs + 2 * i);
    }
    d = low_halves(dwords[kFactors]);
    m = negative(high_halves(dwords[kFactors]));
  }
  static void weights_at(const __m512i* dwords, int half, int j, __m512i* w) noexcept {
    split_pairs(dwords[kPairs + 8 * half + j], w);
  }
};

template <>
struct ColumnsOf<UnpackQ3_K> : KColumns<ColumnsOf<UnpackQ3_K>, quant::BlockQ3_K, 16, 2> {
  static constexpr int kStored = 4;
  static constexpr int kHigh = dword_at(offsetof(Block, high_bits)), kPairs = dword_at(offsetof(Block, q));
  static constexpr int kScales = kMore + 1;

  ColumnsOf(const LinearTask&, const std::byte* const* p) noexcept {
    static_assert(sizeof(Block::sub_scales) == 12 && offsetof(Block, d) == sizeof(Block) - 2);
    transpose(p, kWholeParts);
    transpose_dwords(p, offsetof(Block, sub_scales) - 4,
                     dwords + kMore);                  // dwords 1 to 3: the scales; as packed_scales.h
    transpose_dwords(p, kLast16, dwords + kMore + 4);  // the last half: d
    const __m512i low4 = bytes_of(0x0F), top = bytes_of(0x30), pairs = dwords[kScales + 2];
    const auto put = [&](int i, __m512i nibbles, __m512i bits) {
      const __m512i scale = _mm512_or_si512(_mm512_and_si512(nibbles, low4), _mm512_and_si512(bits, top));
      widen_bytes<true>(_mm512_sub_epi8(scale, bytes_of(32)), scale_pairs + 2 * i);
    };
    put(0, dwords[kScales], _mm512_slli_epi16(pairs, 4));
    put(1, dwords[kScales + 1], _mm512_slli_epi16(pairs, 2));
    put(2, _mm512_srli_epi16(dwords[kScales], 4), pairs);
    put(3, _mm512_srli_epi16(dwords[kScales + 1], 4), _mm512_srli_epi16(pairs, 2));
    d = high_halves(dwords[kDwords - 1]);
  }
  static void weights_at(const __m512i* dwords, int half, int j, __m512i* w) noexcept {
    split_pairs(dwords[kPairs + 8 * half + j], w);
    const __m512i high = half == 0 ? dwords[kHigh + j] : _mm512_srli_epi16(dwords[kHigh + j], 4);
    const __m512i bits[4] = {_mm512_slli_epi16(high, 2), _mm512_slli_epi16(high, 1), high, _mm512_srli_epi16(high, 1)};
    for (int i = 0; i < 4; ++i) w[i] = _mm512_or_si512(w[i], _mm512_and_si512(bits[i], bytes_of(4)));
  }
};

template <>
struct ColumnsOf<UnpackQ4_K> : KColumns<ColumnsOf<UnpackQ4_K>, quant::BlockQ4_K, 8, 0> {
  static constexpr int kStored = 0, kNibbles = dword_at(offsetof(Block, nibbles));

  ColumnsOf(const LinearTask&, const std::byte* const* p) noexcept {
    static_assert(offsetof(Block, d) == 0 && offsetof(Block, d_min) == 2);
    transpose(p, kWholeParts);
    unpack_k_scales(dwords + dword_at(offsetof(Block, sub_scales)));
    d = low_halves(dwords[0]);
    m = negative(high_halves(dwords[0]));
  }
  static void weights_at(const __m512i* dwords, int half, int j, __m512i* w) noexcept {
    split_nibbles(dwords[kNibbles + 16 * half + j], dwords[kNibbles + 16 * half + 8 + j], w);
  }
};

template <>
struct ColumnsOf<UnpackQ5_K> : KColumns<ColumnsOf<UnpackQ5_K>, quant::BlockQ5_K, 8, 0> {
  static constexpr int kStored = 0;
  static constexpr int kHigh = dword_at(offsetof(Block, high_bits)), kNibbles = dword_at(offsetof(Block, nibbles));

  ColumnsOf(const LinearTask&, const std::byte* const* p) noexcept {
    static_assert(offsetof(Block, d) == 0 && offsetof(Block, d_min) == 2);
    transpose(p, kWholeParts);
    unpack_k_scales(dwords + dword_at(offsetof(Block, sub_scales)));
    d = low_halves(dwords[0]);
    m = negative(high_halves(dwords[0]));
  }
  static void weights_at(const __m512i* dwords, int half, int j, __m512i* w) noexcept {
    split_nibbles(dwords[kNibbles + 16 * half + j], dwords[kNibbles + 16 * half + 8 + j], w);
    const __m512i high = half == 0 ? dwords[kHigh + j] : _mm512_srli_epi16(dwords[kHigh + j], 4);
    const __m512i bits[4] = {_mm512_slli_epi16(high, 4), _mm512_slli_epi16(high, 3), _mm512_slli_epi16(high, 2),
                             _mm512_slli_epi16(high, 1)};
    for (int i = 0; i < 4; ++i) w[i] = _mm512_or_si512(w[i], _mm512_and_si512(bits[i], bytes_of(16)));
  }
};

template <>
struct ColumnsOf<UnpackQ6_K> : KColumns<ColumnsOf<UnpackQ6_K>, quant::BlockQ6_K, 16, 1> {
  static constexpr int kStored = 32;
  static constexpr int kHigh = dword_at(offsetof(Block, high_bits)), kScales = dword_at(offsetof(Block, sub_scales));
  static_assert(offsetof(Block, nibbles) == 0 && offsetof(Block, d) == sizeof(Block) - 2);

  ColumnsOf(const LinearTask&, const std::byte* const* p) noexcept {
    transpose(p, kWholeParts);
    transpose_dwords(p, kLast16, dwords + kMore);  // the last half: d
    for (int i = 0; i < 4; ++i) widen_bytes<true>(dwords[kScales + i], scale_pairs + 2 * i);
    d = high_halves(dwords[kDwords - 1]);
  }
  static void weights_at(const __m512i* dwords, int half, int j, __m512i* w) noexcept {
    __m512i nibbles[4];  // of the first 32 bytes: groups 0 and 2
    split_nibbles(dwords[16 * half + j], dwords[16 * half + 8 + j], nibbles);
    const __m512i pairs = dwords[kHigh + 8 * half + j], high = bytes_of(0x30);
    w[0] = _mm512_or_si512(nibbles[0], _mm512_and_si512(_mm512_slli_epi16(pairs, 4), high));
    w[1] = _mm512_or_si512(nibbles[2], _mm512_and_si512(_mm512_slli_epi16(pairs, 2), high));
    w[2] = _mm512_or_si512(nibbles[1], _mm512_and_si512(pairs, high));
    w[3] = _mm512_or_si512(nibbles[3], _mm512_and_si512(_mm512_srli_epi16(pairs, 2), high));
  }
};

}  // namespace
}  // namespace assay::backend::cpu
