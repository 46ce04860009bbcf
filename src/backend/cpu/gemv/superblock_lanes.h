// Superblocks of 256 side by side in the 128-bit parts of a register (sets/block_lanes.h): weights, integer scales and
// minima, for the matrix-vector kernels. A piece is 16 elements of each block of a group. Included by kernel files
// only; everything here is local to the file that includes it. Each class says of its format:
//   kBlockBytes, kHasMin, block_bytes(task)  as in superblock_scales.h
//   kKeepsHeads                whether d and m come from what groups keep of their blocks: scales_of_heads(heads); else scales(task, p)
//   kWeightMax, kSubBlock      bound of the weights' magnitudes; elements under one integer scale
//   kSigned, kOffsetShift      weights are unsigned, as weight + 2^kOffsetShift unless that is 0; or signed
//   Group, open(task, p, group)  what is kept of a group while its pieces are multiplied
//   piece(quarter, i), weights(group, quarter, w)  the numbers of the 4 pieces w[i] that are unpacked together
//   scale(group, j)            words: the scale of sub-block j, for every product of a piece
//   minimum(group, sums)       dwords: of minima (with an offset: of scales) times the activations' sums at `sums`, which gemv_prepare.h lays out
#pragma once

#include "backend/cpu/gemv/half_scales.h"
#include "backend/cpu/gemv/superblock_scales.h"
#include "backend/cpu/sets/block_lanes.h"

namespace assay::backend::cpu {
namespace {

// Where a column's sums of a group lie: of pieces 0 2 .., of 1 3 .., of both.
constexpr int64_t kEvenSums = 0, kOddSums = sizeof(Wide), kBothSums = 2 * sizeof(Wide);

// As shuffle_bytes wants it: word j of a block for all of its words.
inline Wide everywhere(int j) noexcept { return all_words(0x0100 + 0x0202 * j); }

struct Unsigned {
  static constexpr bool kSigned = false;
  static constexpr int kOffsetShift = 0;
};

// Pieces of 4 runs of 32 elements, of which a quarter takes the first or the second half.
struct PiecesOfHalves {
  static constexpr int piece(int quarter, int i) noexcept { return 8 * (quarter / 2) + 2 * i + quarter % 2; }
};
struct PiecesInOrder {
  static constexpr int piece(int quarter, int i) noexcept { return 4 * quarter + i; }
};

// The scales of 16 sub-blocks of 16 as words, those of even numbers and those of odd ones.
struct EvenOdd {
  Wide even, odd;
};
inline EvenOdd signed_words(Wide bytes) noexcept {
  return {shift_right_signed_words(shift_left_words(bytes, 8), 8), shift_right_signed_words(bytes, 8)};
}
inline EvenOdd low_nibble_words(Wide bytes) noexcept {
  const Wide low = all_words(15);
  return {and_(bytes, low), and_(shift_right_words(bytes, 8), low)};
}
inline Wide scale_of(const EvenOdd& words, int j) noexcept {
  return shuffle_bytes(j % 2 == 0 ? words.even : words.odd, everywhere(j / 2));
}
inline Wide times_sums(const EvenOdd& words, const std::byte* sums) noexcept {
  return add_products(multiply_words(words.even, load_wide(sums + kEvenSums)), words.odd, load_wide(sums + kOddSums));
}

// ---- Q4_K, Q5_K: d, d_min and 12 bytes with 8 scales and 8 minima (packed_scales.h) in the first 16.

// 8 scales, then 8 minima, as bytes.
inline Wide k_scales(Wide head) noexcept {
  const Wide low = spread(_mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F)),
             top = spread(_mm_setr_epi32(0, 0x30303030, 0, 0x30303030));
  const Wide whole = shift_right_dwords(shuffle_dwords<0xED>(head), spread(_mm_setr_epi32(0, 0, 0, 4)));
  const Wide bits = shift_right_dwords(shuffle_dwords<0x84>(head), 2);
  return or_(and_(whole, low), and_(bits, top));
}

struct KGroup {
  const std::byte* const* p;
  Wide scales;
  Wide head;  // the first 16 bytes
};

template <class Block>
struct KScales : Unsigned, PiecesInOrder {
  static_assert(offsetof(Block, d) == 0 && offsetof(Block, d_min) == 2 &&
                offsetof(Block, sub_scales) == 4);  // the head
  static constexpr int kBlockBytes = sizeof(Block), kSubBlock = 32;
  static constexpr bool kHasMin = true, kKeepsHeads = true;
  static int64_t block_bytes(const LinearTask&) noexcept { return kBlockBytes; }
  // The second number is what is subtracted.
  static Scales scales_of_heads(const Wide* heads) noexcept {
    const HalfPairs pairs = half_pairs(first_dwords(heads));
    return {pairs.first, _mm256_xor_ps(pairs.second, _mm256_set1_ps(-0.0f))};
  }
  static Wide scale(const KGroup& group, int j) noexcept { return shuffle_bytes(group.scales, all_words(0x8000 + j)); }
  static Wide minimum(const KGroup& group, const std::byte* sums) noexcept {
    return multiply_words(upper_bytes_as_words(group.scales), load_wide(sums + kBothSums));
  }
};

inline void unpack_nibbles(const std::byte* const* p, int64_t offset, Wide* w) noexcept {
  const Wide mask = all_bytes(15);
  for (int i = 0; i < 2; ++i) {
    const Wide bytes = gather_wide(p, offset + 16 * i);
    w[i] = and_(bytes, mask);
    w[2 + i] = and_(shift_right_words(bytes, 4), mask);
  }
}

struct LanesQ4_K : KScales<quant::BlockQ4_K> {
  static constexpr int kWeightMax = 15;
  using Group = KGroup;
  static void open(const LinearTask&, const std::byte* const* p, Group& group) noexcept {
    group.p = p;
    group.head = gather_wide(p, 0);
    group.scales = k_scales(group.head);
  }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    unpack_nibbles(group.p, offsetof(quant::BlockQ4_K, nibbles) + 32 * quarter, w);
  }
};

struct LanesQ5_K : KScales<quant::BlockQ5_K> {
  static constexpr int kWeightMax = 31;
  struct Group : KGroup {
    Wide high[2][2];  // [nibble][half of 32]: fifth bits of sub-blocks 0..3 and 4..7
  };
  static void open(const LinearTask&, const std::byte* const* p, Group& group) noexcept {
    group.p = p;
    group.head = gather_wide(p, 0);
    group.scales = k_scales(group.head);
    for (int i = 0; i < 2; ++i) {
      const Wide bits = gather_wide(p, offsetof(quant::BlockQ5_K, high_bits) + 16 * i), mask = all_bytes(15);
      group.high[0][i] = and_(bits, mask);
      group.high[1][i] = and_(shift_right_words(bits, 4), mask);
    }
  }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    unpack_nibbles(group.p, offsetof(quant::BlockQ5_K, nibbles) + 32 * quarter, w);
    // 16 where a number of 4 bits has bit 0, 1, 2, 3
    const Wide tables[4] = {spread(_mm_set1_epi16(0x1000)), spread(_mm_set1_epi32(0x10100000)),
                            spread(_mm_set1_epi64x(0x1010101000000000)), spread(_mm_set_epi64x(0x1010101010101010, 0))};
    for (int i = 0; i < 4; ++i)
      w[i] = or_(w[i], shuffle_bytes(tables[2 * (quarter % 2) + i / 2], group.high[quarter / 2][i % 2]));
  }
};

// ---- Formats with sub-blocks of 16.

// Pairs of bits of 16 bytes.
inline void unpack_pairs(Wide bytes, Wide* w) noexcept {
  const Wide mask = all_bytes(3);
  w[0] = and_(bytes, mask);
  for (int i = 1; i < 4; ++i) w[i] = and_(shift_right_words(bytes, 2 * i), mask);
}

struct LanesQ2_K : ScaleAndMin<quant::BlockQ2_K>, Unsigned, PiecesOfHalves {
  static constexpr bool kKeepsHeads = false;
  static constexpr int kBlockBytes = sizeof(quant::BlockQ2_K), kWeightMax = 3, kSubBlock = 16;
  struct Group {
    const std::byte* const* p;
    EvenOdd scales, minima;
  };
  static void open(const LinearTask&, const std::byte* const* p, Group& group) noexcept {
    const Wide bytes = gather_wide(p, offsetof(quant::BlockQ2_K, sub_scales));
    group = {p, low_nibble_words(bytes), low_nibble_words(shift_right_words(bytes, 4))};
  }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    unpack_pairs(gather_wide(group.p, offsetof(quant::BlockQ2_K, q) + 16 * quarter), w);
  }
  static Wide scale(const Group& group, int j) noexcept { return scale_of(group.scales, j); }
  static Wide minimum(const Group& group, const std::byte* sums) noexcept { return times_sums(group.minima, sums); }
};

struct SignedScales : Unsigned, PiecesOfHalves {
  static constexpr int kSubBlock = 16;
  struct Group {
    const std::byte* const* p;
    EvenOdd scales;
  };
  static Wide scale(const Group& group, int j) noexcept { return scale_of(group.scales, j); }
  static Wide minimum(const Group& group, const std::byte* sums) noexcept { return times_sums(group.scales, sums); }
};

struct LanesQ3_K : OneScale<quant::BlockQ3_K>, SignedScales {
  static constexpr bool kKeepsHeads = false;
  static constexpr int kBlockBytes = sizeof(quant::BlockQ3_K), kWeightMax = 7, kOffsetShift = 2;
  static void open(const LinearTask&, const std::byte* const* p, Group& group) noexcept {
    const Wide packed = gather_wide(p, offsetof(quant::BlockQ3_K, sub_scales) - 2);  // nothing behind the block is read
    const Wide nibbles = shuffle_bytes(packed, spread(_mm_setr_epi8(2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9)));
    const Wide pairs = shuffle_bytes(packed, spread(_mm_set1_epi32(0x0D0C0B0A)));
    const Wide low = and_(shift_right_dwords(nibbles, spread(_mm_setr_epi32(0, 0, 4, 4))), all_bytes(15));
    const Wide moved = shift_right_dwords(shift_left_dwords(pairs, spread(_mm_setr_epi32(4, 2, 0, 0))),
                                          spread(_mm_setr_epi32(0, 0, 0, 2)));
    group = {p, signed_words(subtract_bytes(or_(low, and_(moved, all_bytes(0x30))), all_bytes(32)))};
  }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    unpack_pairs(gather_wide(group.p, offsetof(quant::BlockQ3_K, q) + 16 * quarter), w);
    const Wide bits = gather_wide(group.p, offsetof(quant::BlockQ3_K, high_bits) + 16 * (quarter % 2)),
               four = all_bytes(4);
    for (int i = 0; i < 4; ++i) {
      const int bit = 4 * (quarter / 2) + i;
      w[i] = or_(w[i], and_(bit < 2 ? shift_left_words(bits, 2 - bit) : shift_right_words(bits, bit - 2), four));
    }
  }
};

struct LanesQ6_K : OneScale<quant::BlockQ6_K>, SignedScales {
  static constexpr bool kKeepsHeads = false;
  static constexpr int kBlockBytes = sizeof(quant::BlockQ6_K), kWeightMax = 63, kOffsetShift = 5;
  static void open(const LinearTask&, const std::byte* const* p, Group& group) noexcept {
    group = {p, signed_words(gather_wide(p, offsetof(quant::BlockQ6_K, sub_scales)))};
  }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    const int64_t at = offsetof(quant::BlockQ6_K, nibbles) + 64 * (quarter / 2) + 16 * (quarter % 2);
    const Wide low = all_bytes(15), high = all_bytes(0x30);
    const Wide first = gather_wide(group.p, at), second = gather_wide(group.p, at + 32);
    const Wide pairs = gather_wide(group.p, offsetof(quant::BlockQ6_K, high_bits) + 16 * quarter);
    w[0] = or_(and_(first, low), and_(shift_left_words(pairs, 4), high));
    w[1] = or_(and_(second, low), and_(shift_left_words(pairs, 2), high));
    w[2] = or_(and_(shift_right_words(first, 4), low), and_(pairs, high));
    w[3] = or_(and_(shift_right_words(second, 4), low), and_(shift_right_words(pairs, 2), high));
  }
};

// ---- Codebooks: signed weights, no minimum.

struct Signed : PiecesInOrder {
  static constexpr bool kSigned = true;
  static constexpr int kOffsetShift = 0;
};

struct LanesIQ4_XS : Signed {
  static constexpr int kBlockBytes = sizeof(quant::BlockIQ4_XS), kWeightMax = 127, kSubBlock = 32;
  static constexpr bool kHasMin = false, kKeepsHeads = true;
  using Group = KGroup;
  static int64_t block_bytes(const LinearTask&) noexcept { return kBlockBytes; }
  static Scales scales_of_heads(const Wide* heads) noexcept {
    return {half_pairs(first_dwords(heads)).first, zero_8()};
  }
  // Nibbles and pairs of top bits of 8 scales around 32, to words.
  static void open(const LinearTask&, const std::byte* const* p, Group& group) noexcept {
    const Wide head = gather_wide(p, 0);
    const Wide nibbles =
        shuffle_bytes(head, spread(_mm_setr_epi8(4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1)));
    const Wide pairs =
        shuffle_bytes(head, spread(_mm_setr_epi8(2, -1, 2, -1, 2, -1, 2, -1, 3, -1, 3, -1, 3, -1, 3, -1)));
    const Wide even = and_(nibbles, spread(_mm_set1_epi32(0x0000000F))),
               odd = and_(nibbles, spread(_mm_set1_epi32(0x00F00000)));
    const Wide top =
        and_(low_words_of_products(pairs, spread(_mm_setr_epi16(64, 16, 4, 1, 64, 16, 4, 1))), all_words(0xC0));
    group = {p, subtract_words(or_(or_(even, shift_right_words(odd, 4)), shift_right_words(top, 2)), all_words(32)),
             head};
  }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    const Wide levels = spread(_mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)),
               mask = all_bytes(15);
    for (int i = 0; i < 4; i += 2) {
      const Wide bytes = gather_wide(group.p, offsetof(quant::BlockIQ4_XS, nibbles) + 32 * quarter + 8 * i);
      w[i] = shuffle_bytes(levels, and_(bytes, mask));
      w[i + 1] = shuffle_bytes(levels, and_(shift_right_words(bytes, 4), mask));
    }
  }
  static Wide scale(const Group& group, int j) noexcept { return shuffle_bytes(group.scales, everywhere(j)); }
};

// ---- Ternary: one scale of the block.

struct LanesTQ2_0 : OneScale<quant::BlockTQ2_0>, PiecesOfHalves {
  static constexpr bool kKeepsHeads = false, kSigned = true;
  static constexpr int kOffsetShift = 0, kBlockBytes = sizeof(quant::BlockTQ2_0), kWeightMax = 2, kSubBlock = 16;
  struct Group {
    const std::byte* const* p;
  };
  static void open(const LinearTask&, const std::byte* const* p, Group& group) noexcept { group.p = p; }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    unpack_pairs(gather_wide(group.p, offsetof(quant::BlockTQ2_0, q) + 16 * quarter), w);
    for (int i = 0; i < 4; ++i) w[i] = subtract_bytes(w[i], all_bytes(1));
  }
  static Wide scale(const Group&, int) noexcept { return all_words(1); }
};

// Digits to the base of 3: of 32 bytes five each for pieces 0 to 9, of 16 bytes five for pieces 10 to 14, of 4 bytes
// four each for the last.
struct LanesTQ1_0 : OneScale<quant::BlockTQ1_0>, Signed {
  static constexpr bool kKeepsHeads = false;
  static constexpr int kBlockBytes = sizeof(quant::BlockTQ1_0), kWeightMax = 1, kSubBlock = 16;
  // Bytes as words, those of even places and those of odd ones: of pieces 0 2 .., 1 3 .., 10 11 .., 15.
  struct Group {
    EvenOdd bytes[4];
  };
  static void open(const LinearTask&, const std::byte* const* p, Group& group) noexcept {
    using Block = quant::BlockTQ1_0;
    constexpr int64_t kLast = sizeof(Block) - 16;  // nothing behind the block is read
    static_assert(offsetof(Block, fives) == 0 && offsetof(Block, fours) == kLast + 10);
    const Wide low = all_words(0xFF);
    for (int i = 0; i < 4; ++i) {
      Wide bytes = gather_wide(p, i < 3 ? 16 * i : kLast);
      if (i == 3) bytes = shuffle_bytes(bytes, spread(_mm_set1_epi32(0x0D0C0B0A)));
      group.bytes[i] = {and_(bytes, low), shift_right_words(bytes, 8)};
    }
  }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    constexpr int kPowers[5] = {1, 3, 9, 27, 81};
    for (int i = 0; i < 4; ++i) {
      const int piece = 4 * quarter + i;
      const EvenOdd& of = group.bytes[piece < 10 ? piece % 2 : piece < 15 ? 2 : 3];
      const Wide power = piece < 15 ? all_words(kPowers[piece < 10 ? piece / 2 : piece - 10])
                                    : spread(_mm_setr_epi16(1, 1, 3, 3, 9, 9, 27, 27));
      const auto digit = [&](Wide words) {  // in the upper bytes
        return low_words_of_products(and_(low_words_of_products(words, power), all_words(0xFF)), all_words(3));
      };
      const Wide upper = and_(digit(of.odd), all_words(0xFF00));
      w[i] = subtract_bytes(or_(shift_right_words(digit(of.even), 8), upper), all_bytes(1));
    }
  }
  static Wide scale(const Group&, int) noexcept { return all_words(1); }
};

// ---- Codebooks that are unpacked before.

// Integers that are made block by block, before they are read as pieces. Derived: integers(task, p, out), and what
// superblock_lanes.h asks of scales.
template <class Derived>
struct LanesOfIntegers : Signed {
  static constexpr bool kKeepsHeads = false;
  static constexpr int kWeightMax = 127, kSubBlock = 16;
  struct Group {
    quant::Integers256 integers[kLanes / kGroups];
    const std::byte* p[kLanes];
    Wide scales[2];
  };
  static void open(const LinearTask& task, const std::byte* const* p, Group& group) noexcept {
    quant::Integers256* integers = group.integers;
    for (const int half : {0, kLanes / 2}) {
      for (int lane = half; lane < half + kLanes / 2 / kGroups; ++lane, ++integers) {
        Derived::integers(task, p[lane], *integers);
        group.p[lane] = reinterpret_cast<const std::byte*>(integers);
      }
    }
    for (int i = 0; i < 2; ++i)
      group.scales[i] = gather_wide(group.p, static_cast<int64_t>(offsetof(quant::Integers256, scale)) + 16 * i);
  }
  static void weights(const Group& group, int quarter, Wide* w) noexcept {
    for (int i = 0; i < 4; ++i)
      w[i] = gather_wide(group.p, static_cast<int64_t>(offsetof(quant::Integers256, w)) + 64 * quarter + 16 * i);
  }
  static Wide scale(const Group& group, int j) noexcept {
    return shuffle_bytes(group.scales[j / 8], everywhere(j % 8));
  }
};

// The plain code makes them.
struct LanesAny : AnyScale, LanesOfIntegers<LanesAny> {
  static constexpr int kBlockBytes = 50;  // of IQ1_S, the smallest, for fetching ahead
  static void integers(const LinearTask& task, const std::byte* p, quant::Integers256& out) noexcept {
    task.format->integers(p, out);
  }
};

// Rows of grids with signs. The numbers of d are halves, which kOverD divides.
template <class Block, int kOverD>
struct LanesOfGrid : LanesOfIntegers<LanesOfGrid<Block, kOverD>> {
  static constexpr int kBlockBytes = sizeof(Block);
  static constexpr bool kHasMin = false;
  static int64_t block_bytes(const LinearTask&) noexcept { return kBlockBytes; }
  static Scales scales(const LinearTask&, const std::byte* const* p) noexcept {
    return {mul_8(load_halves(p, offsetof(Block, d)), splat_8(1.0f / kOverD)), zero_8()};
  }
  static void integers(const LinearTask&, const std::byte* p, quant::Integers256& out) noexcept {
    Block b;
    __builtin_memcpy(&b, p, sizeof b);
    const __m256i byte_of_bit = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303),
                  bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    for (int run = 0; run < 8; ++run) {
      const quant::SignedRows r = quant::signed_rows(b, run);
      const __m256i levels = _mm256_setr_epi64x(static_cast<int64_t>(r.rows[0]), static_cast<int64_t>(r.rows[1]),
                                                static_cast<int64_t>(r.rows[2]), static_cast<int64_t>(r.rows[3]));
      const __m256i bits =
          _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int32_t>(r.signs)), byte_of_bit), bit);
      const __m256i minus = _mm256_cmpeq_epi8(bits, bit);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.w + 32 * run),
                          _mm256_sub_epi8(_mm256_xor_si256(levels, minus), minus));
    }
    quant::integer_scales(b, out);
  }
};

}  // namespace
}  // namespace assay::backend::cpu
