// A block of 32 of 8 rows for the AVX2 matrix-matrix kernels, with the rows as the 8 lanes of a register. Included by
// kernel files only; everything here is local to the file that includes it.
//   Weights are transposed as they lie in the file, 4 bytes of every row to a register, and unpacked then, where one
//   instruction serves 8 rows.
#pragma once

#include "backend/cpu/gemm/block_heads.h"
#include "backend/cpu/gemm/gemm_avx2.h"
#include "backend/cpu/gemm/panel_a32.h"

namespace assay::backend::cpu {
namespace {

// What the columns of a format have: 8 registers, of which register i has elements 4i .. 4i + 3 of every row.
//   kSigned      the bytes are the weights; else weight + Format::kOffset, without sign
//   scales(p)    of the 8 blocks (block_heads.h)
template <class Format>
struct BlockColumns;

// Elements 0 .. 15 are lower nibbles, 16 .. 31 upper ones.
template <class Block>
inline void nibble_columns(const std::byte* const* p, __m256i* columns) noexcept {
  __m256i bytes[4];
  transpose_16_bytes(p, offsetof(Block, nibbles), bytes);
  const __m256i mask = _mm256_set1_epi8(15);
  for (int i = 0; i < 4; ++i) {
    columns[i] = _mm256_and_si256(bytes[i], mask);
    columns[4 + i] = _mm256_and_si256(_mm256_srli_epi16(bytes[i], 4), mask);
  }
}

template <class Block>
struct NibbleColumns {
  static constexpr bool kSigned = false;
  static void weights(const std::byte* const* p, __m256i* columns) noexcept { nibble_columns<Block>(p, columns); }
};
template <>
struct BlockColumns<RowsQ4_0> : NibbleColumns<quant::BlockQ4_0>, OneScale {};
template <>
struct BlockColumns<RowsQ4_1> : NibbleColumns<quant::BlockQ4_1>, ScaleAndMin {};

// Adds 16 where the row's mask of 32 bits has the element's.
template <class Block>
struct FifthBitColumns {
  static constexpr bool kSigned = false;
  static void weights(const std::byte* const* p, __m256i* columns) noexcept {
    nibble_columns<Block>(p, columns);
    alignas(32) int32_t masks[kRows];
    for (int64_t i = 0; i < kRows; ++i) __builtin_memcpy(&masks[i], p[i] + offsetof(Block, high_bits), 4);
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(masks));
    const __m256i low = _mm256_set1_epi32(0x08040201), high = _mm256_set1_epi32(static_cast<int>(0x80402010u)),
                  sixteen = _mm256_set1_epi8(16);
    const __m256i first_byte =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C);
    for (int i = 0; i < 8; i += 2) {  // a byte of the mask has the bits of 8 elements
      const __m256i byte =
          _mm256_shuffle_epi8(bits, _mm256_add_epi8(first_byte, _mm256_set1_epi8(static_cast<char>(i / 2))));
      for (int half = 0; half < 2; ++half) {
        const __m256i bit = half == 0 ? low : high, is_set = _mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit);
        columns[i + half] = _mm256_or_si256(columns[i + half], _mm256_and_si256(is_set, sixteen));
      }
    }
  }
};
template <>
struct BlockColumns<RowsQ5_0> : FifthBitColumns<quant::BlockQ5_0>, OneScale {};
template <>
struct BlockColumns<RowsQ5_1> : FifthBitColumns<quant::BlockQ5_1>, ScaleAndMin {};

// Nibbles are places in a table.
inline void look_up_columns(__m128i levels, __m256i* columns) noexcept {
  for (int i = 0; i < 8; ++i) columns[i] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(levels), columns[i]);
}
template <>
struct BlockColumns<RowsIQ4_NL> : OneScale {
  static constexpr bool kSigned = true;
  static void weights(const std::byte* const* p, __m256i* columns) noexcept {
    nibble_columns<quant::BlockIQ4_NL>(p, columns);
    look_up_columns(RowsIQ4_NL::levels(), columns);
  }
};
template <>
struct BlockColumns<RowsMXFP4> : PowerScale {
  static constexpr bool kSigned = false;
  static void weights(const std::byte* const* p, __m256i* columns) noexcept {
    nibble_columns<quant::BlockMXFP4>(p, columns);
    look_up_columns(RowsMXFP4::levels(), columns);
  }
};

template <>
struct BlockColumns<RowsQ8_0> : OneScale {
  static constexpr bool kSigned = true;
  static void weights(const std::byte* const* p, __m256i* columns) noexcept {
    transpose_16_bytes(p, offsetof(quant::BlockQ8_0, q), columns);
    transpose_16_bytes(p, offsetof(quant::BlockQ8_0, q) + 16, columns + 4);
  }
};

}  // namespace
}  // namespace assay::backend::cpu
