// A superblock of 256 of 8 rows for the AVX2 matrix-matrix kernels, with the rows as the 8 lanes of a register.
// Included by kernel files only; everything here is local to the file that includes it.
//   The formats that files have most are transposed as they lie there, 4 bytes of every row to a register, and unpacked
// then, where one instruction serves 8 rows; of the other formats each row is unpacked first (unpack_a256.h).
#pragma once

#include <cstddef>

#include "backend/cpu/gemm/gemm_avx2.h"
#include "backend/cpu/gemv/half_scales.h"
#include "backend/cpu/gemv/unpack_a256.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

// Bytes at..at + 31 of 8 rows to 8 registers of a dword of every row.
inline void transpose_bytes(const std::byte* const* p, int64_t at, __m256i* columns) noexcept {
  transpose_16_bytes(p, at, columns);
  transpose_16_bytes(p, at + 16, columns + 4);
}

// Byte i of each dword as both of its words, without sign.
inline __m256i double_byte(__m256i dwords, int i) noexcept {
  const __m256i order = _mm256_setr_epi32(0, 0x00040004, 0x00080008, 0x000C000C, 0, 0x00040004, 0x00080008, 0x000C000C);
  return _mm256_shuffle_epi8(dwords, _mm256_add_epi8(order, _mm256_set1_epi16(static_cast<int16_t>(0x8000 | i))));
}

// The same in the upper byte of each word, above zeros.
inline __m256i double_byte_above(__m256i dwords, int i) noexcept {
  const __m256i order = _mm256_setr_epi32(0, 0x04000400, 0x08000800, 0x0C000C00, 0, 0x04000400, 0x08000800, 0x0C000C00);
  return _mm256_shuffle_epi8(dwords, _mm256_add_epi8(order, _mm256_set1_epi16(static_cast<int16_t>(i << 8 | 0x80))));
}

// Of the bytes the bits of `mask`, shifted left (right where negative).
inline __m256i bits_of(__m256i v, int left, int mask) noexcept {
  return _mm256_and_si256(left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left),
                          _mm256_set1_epi8(static_cast<char>(mask)));
}

// What the columns of a format have, of 8 rows:
//   scales, minima     the integers of each sub-block, in both words of a dword; scales in the upper byte, above zeros
//   scales_of_blocks   as Format::scales
//   weights(put)       calls put(unit, i, w) for each of the 8 units of 32 elements with its elements 4i .. 4i + 3 of every row, as weight + kStored
template <class Format>
struct ColumnsOf {
  static constexpr int kSubs = 256 / Format::kSubBlock, kStored = Format::kSigned ? 128 : Format::kOffset;

  ColumnsOf(const LinearTask& task, const std::byte* const* p) noexcept : scales_of_blocks(Format::scales(task, p)) {
    __m256i scale[kRows], min[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      blocks[i] = Format::open(task, p[i]);
      const SubScales s = Format::sub_scales(blocks[i]);
      scale[i] = _mm256_slli_epi16(s.scale, 8);
      min[i] = s.min;
    }
    double_columns(scale, scales);
    if constexpr (Format::kHasMin) double_columns(min, minima);
  }

  // The words of each group of 16 elements to one register for every sub-block.
  static void double_columns(const __m256i* words, __m256i* columns) noexcept {
    if constexpr (kSubs == 8) {
      transpose_8(words, columns);  // both words of a dword are those of its sub-block
    } else {
      __m256i twice[2][kRows], of_half[8];
      for (int64_t i = 0; i < kRows; ++i) {
        twice[0][i] = _mm256_unpacklo_epi16(words[i], words[i]);  // of sub-blocks 0..3 and 8..11
        twice[1][i] = _mm256_unpackhi_epi16(words[i], words[i]);
      }
      for (int h = 0; h < 2; ++h) {
        transpose_8(twice[h], of_half);
        for (int d = 0; d < 8; ++d) columns[d / 4 * 8 + 4 * h + d % 4] = of_half[d];
      }
    }
  }

  template <class Put>
  void weights(const Put& put) const noexcept {
    for (int half = 0; half < 2; ++half) {
      __m256i w[kRows][4];
      for (int64_t i = 0; i < kRows; ++i) Format::unpack(blocks[i], half, w[i]);
      for (int j = 0; j < 4; ++j) {
        __m256i rows[kRows], columns[8];
        for (int64_t i = 0; i < kRows; ++i)
          rows[i] = Format::kSigned ? _mm256_xor_si256(w[i][j], _mm256_set1_epi8(-128)) : w[i][j];
        transpose_8(rows, columns);
        for (int i = 0; i < 8; ++i) put(4 * half + j, i, columns[i]);
      }
    }
  }

  Scales scales_of_blocks;
  typename Format::Block blocks[kRows];
  __m256i scales[kSubs], minima[Format::kHasMin ? kSubs : 1];
};

// Q4_K and Q5_K: the head with d, m and the packed scales, as 4 dwords of every row.
template <class Block>
struct KColumns {
  static_assert(offsetof(Block, d) == 0 && offsetof(Block, d_min) == 2 && offsetof(Block, sub_scales) == 4 &&
                sizeof(Block::sub_scales) == 12);
  static constexpr int kNibbles = offsetof(Block, nibbles);
  static constexpr int kStored = 0;

  explicit KColumns(const std::byte* const* p) noexcept : rows(p) {
    __m256i head[4];
    transpose_16_bytes(p, 0, head);
    const __m256i low6 = _mm256_set1_epi8(0x3F);
    const auto upper = [](__m256i nibbles, __m256i pairs) {  // as packed_scales.h
      return _mm256_or_si256(_mm256_and_si256(nibbles, _mm256_set1_epi8(0x0F)),
                             _mm256_and_si256(_mm256_srli_epi16(pairs, 2), _mm256_set1_epi8(0x30)));
    };
    const __m256i of_scales[2] = {_mm256_and_si256(head[1], low6), upper(head[3], head[1])};
    const __m256i of_minima[2] = {_mm256_and_si256(head[2], low6), upper(_mm256_srli_epi16(head[3], 4), head[2])};
    for (int i = 0; i < 8; ++i) {
      scales[i] = double_byte_above(of_scales[i / 4], i % 4);
      minima[i] = double_byte(of_minima[i / 4], i % 4);
    }
    const HalfPairs halves = half_pairs(head[0]);
    scales_of_blocks = {halves.first, _mm256_xor_ps(halves.second, _mm256_set1_ps(-0.0f))};
  }

  // of_nibbles(w, i, upper): the weights from their nibbles, the lower or the upper ones of each byte; of 32 bytes
  // after the other.
  template <class OfNibbles, class Put>
  void nibbles(const OfNibbles& of_nibbles, const Put& put) const noexcept {
    for (int j = 0; j < 4; ++j) {
      __m256i columns[8];
      transpose_bytes(rows, kNibbles + 32 * j, columns);
      for (int i = 0; i < 8; ++i) {
        for (int upper = 0; upper < 2; ++upper)
          put(2 * j + upper, i, of_nibbles(bits_of(columns[i], -4 * upper, 15), i, upper));
      }
    }
  }

  const std::byte* const* rows;
  Scales scales_of_blocks;
  __m256i scales[8], minima[8];
};

template <>
struct ColumnsOf<UnpackQ4_K> : KColumns<quant::BlockQ4_K> {
  ColumnsOf(const LinearTask&, const std::byte* const* p) noexcept : KColumns(p) {}
  template <class Put>
  void weights(const Put& put) const noexcept {
    nibbles([](__m256i w, int, int) { return w; }, put);
  }
};

template <>
struct ColumnsOf<UnpackQ5_K> : KColumns<quant::BlockQ5_K> {
  ColumnsOf(const LinearTask&, const std::byte* const* p) noexcept : KColumns(p) {}
  template <class Put>
  void weights(const Put& put) const noexcept {
    __m256i high[8];
    transpose_bytes(rows, offsetof(quant::BlockQ5_K, high_bits), high);
    const auto of_nibbles = [&](__m256i w, int i, int upper) {
      const __m256i weight = _mm256_or_si256(w, bits_of(high[i], 4 - upper, 16));
      if (upper == 1)
        high[i] = _mm256_srli_epi16(
            high[i], 2);  // the next pair of bits; what comes from the next byte is not among the lowest two here
      return weight;
    };
    nibbles(of_nibbles, put);
  }
};

template <>
struct ColumnsOf<UnpackQ6_K> {
  using Block = quant::BlockQ6_K;
  static constexpr int kHighBits = offsetof(Block, high_bits);
  static_assert(offsetof(Block, nibbles) == 0);
  static constexpr int kStored = UnpackQ6_K::kOffset;

  ColumnsOf(const LinearTask& task, const std::byte* const* p) noexcept
      : rows(p), scales_of_blocks(UnpackQ6_K::scales(task, p)) {
    __m256i bytes[4];
    transpose_16_bytes(p, offsetof(Block, sub_scales), bytes);
    for (int i = 0; i < 16; ++i) scales[i] = double_byte_above(bytes[i / 4], i % 4);
  }

  template <class Put>
  void weights(const Put& put) const noexcept {
    for (int half = 0; half < 2; ++half) {
      __m256i nibbles[2][8], pairs[8];
      for (int j = 0; j < 2; ++j) transpose_bytes(rows, 64 * half + 32 * j, nibbles[j]);
      transpose_bytes(rows, kHighBits + 32 * half, pairs);
      for (int i = 0; i < 8; ++i) {
        for (int j = 0; j < 4; ++j) {
          put(4 * half + j, i,
              _mm256_or_si256(bits_of(nibbles[j % 2][i], -4 * (j / 2), 15), bits_of(pairs[i], 4 - 2 * j, 0x30)));
        }
      }
    }
  }

  const std::byte* const* rows;
  Scales scales_of_blocks;
  __m256i scales[16], minima[1];
};

}  // namespace
}  // namespace assay::backend::cpu
