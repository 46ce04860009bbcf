// Blocks of 32 by AVX-512 VNNI, 16 at a time as they lie in the file: their integers, and the terms of contract dot/1 in
// the order of blocks. Included by kernel files only; everything here is local to the file that includes it.
//
// 4 and 5 bits: a window of 64 bytes holds three blocks of a quad, or the scales of three or four, and one permutation
// of its words takes them out: every part of these blocks lies at an even place. 8 bits: a register holds a pair.
#pragma once

#include <array>
#include <cstring>

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemv/gemv_prepare.h"
#include "backend/cpu/gemv/quads_avx512.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kTogether = 16;          // blocks of which all is done at once
constexpr int64_t kBytesAhead = 8 * 1024;  // between what is read and what is fetched

// Activations in the order of blocks. Sums begin anew after a row, quads after the rows that are whole quads; so much
// stands behind that sixteen may be read from anywhere.
struct BlockActivations {
  int8_t* q;      // [quads][planes][128]: as Format has a quad
  int32_t* sums;  // times the format's offset
  float* g;
  int64_t n_blocks, n_quads;  // until each begins anew
};
constexpr int64_t quads_before_anew(int64_t n_blocks) noexcept {
  return n_blocks % 4 == 0 ? n_blocks / 4 : n_blocks / 2;
}
constexpr int64_t quads_laid_out(int64_t n_blocks) noexcept { return quads_before_anew(n_blocks) + kTogether / 4 - 1; }

// out: its arrays.
template <class Format, int kPlanes>
void lay_out_blocks(const LinearTask& task, BlockActivations& out) noexcept {
  const quant::Activations& x = task.x;
  const int64_t n = task.k / 32;
  out.n_blocks = n;
  out.n_quads = quads_before_anew(n);
  for (int64_t i = 0; i < 4 * quads_laid_out(n); ++i) {
    int8_t* at = out.q + i / 4 * (kPlanes * 128) + i % 4 * Format::kBlockStride;
    for (int plane = 0; plane < kPlanes; ++plane, at += 128) {
      const int8_t* from = (plane == 0 ? x.q : x.l) + 32 * (i % n);
      std::memcpy(at, from, 16);
      std::memcpy(at + Format::kHalfStride, from + 16, 16);
    }
  }
  for (int64_t i = 0; i < n + kTogether; ++i) {
    const int64_t block = i % n;
    const int32_t sum = kPlanes == 2 ? 128 * x.q_sums[block] + x.l_sums[block] : x.q_sums[block];
    out.sums[i] = Format::kOffset * sum;
    out.g[i] = static_cast<float>(sum) * (kPlanes == 2 ? 0x1p-7f : 1.0f);
  }
}

// The first kWords words of a part of 16 blocks, which lies at kAt, taken out of windows of 64 bytes, or of 128 where
// that would be many: lane i has a block's first, lane 16 + i its second.
template <int kBlockBytes, int kAt, int kWords>
struct WordsOfBlocks {
  static constexpr int in_window(int bytes) { return (bytes - 2 * kWords) / kBlockBytes + 1; }
  static constexpr int kBytes = 4 * in_window(64) < 16 ? 128 : 64;
  static constexpr int kPerWindow = in_window(kBytes), kWindows = (16 + kPerWindow - 1) / kPerWindow;
  static constexpr int first(int window) { return window == kWindows - 1 ? 16 - kPerWindow : window * kPerWindow; }
  static_assert(kAt + first(kWindows - 1) * kBlockBytes + kBytes <= 16 * kBlockBytes,
                "the last window ends with the blocks");
  static constexpr std::array<int16_t, 32> places() {
    std::array<int16_t, 32> at{};
    for (int i = 0; i < 32; ++i)
      at[i] = static_cast<int16_t>((i % 16 - first(i % 16 / kPerWindow)) * (kBlockBytes / 2) + i / 16);
    return at;
  }
  [[gnu::always_inline]] static __m512i load(const std::byte* blocks) noexcept {
    alignas(64) static constexpr std::array<int16_t, 32> kPlaces = places();
    const __m512i at = _mm512_load_si512(kPlaces.data());
    __m512i words = _mm512_setzero_si512();
    for (int window = 0; window < kWindows; ++window) {
      const uint32_t upto16 = 0xFFFFu & (0xFFFFu << (window * kPerWindow));
      const __mmask32 mask = kWords == 2 ? upto16 | upto16 << 16 : upto16;
      const std::byte* bytes = blocks + kAt + first(window) * kBlockBytes;
      const __m512i taken = kBytes == 64 ? _mm512_permutexvar_epi16(at, _mm512_loadu_si512(bytes))
                                         : _mm512_permutex2var_epi16(_mm512_loadu_si512(bytes), at,
                                                                     _mm512_loadu_si512(bytes + kBytes - 64));
      words = window == 0 ? taken : _mm512_mask_mov_epi16(words, mask, taken);
    }
    return words;
  }
};

// The nibbles of a quad, which are the last 16 bytes of a block.
template <int kBlockBytes>
[[gnu::always_inline]] inline __m512i load_nibbles(const std::byte* blocks) noexcept {
  constexpr int kAt = kBlockBytes - 16;
  static_assert(2 * kBlockBytes + 16 <= 64);
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<int16_t, 32> at{};
    for (int i = 0; i < 24; ++i) at[i] = static_cast<int16_t>(i / 8 * (kBlockBytes / 2) + i % 8);
    return at;
  }();
  const __m512i three = _mm512_permutexvar_epi16(_mm512_load_si512(kPlaces.data()), _mm512_loadu_si512(blocks + kAt));
  return _mm512_inserti32x4(three, _mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks + 3 * kBlockBytes + kAt)),
                            3);
}

// m only where the format has a minimum.
struct ScalesOf16 {
  __m512 d, m;
};

// Halves at the beginning of a block: d, then m.
template <int kBlockBytes, bool kMinima>
struct HalvesOfBlocks {
  static constexpr bool kHasMin = kMinima;
  [[gnu::always_inline]] static ScalesOf16 scales(const std::byte* blocks) noexcept {
    const __m512i halves = WordsOfBlocks < kBlockBytes, 0, kMinima ? 2 : 1 > ::load(blocks);
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
            kMinima ? _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)) : _mm512_setzero_ps()};
  }
};

// Four quads of integers to be.
template <class Block>
struct Nibbles {
  static constexpr int kBlockBytes = sizeof(Block);
  [[gnu::always_inline]] static void unpack(const std::byte* blocks, Quad* quads) noexcept {
    for (int i = 0; i < 4; ++i) quads[i] = split_nibbles(load_nibbles<kBlockBytes>(blocks + 4 * i * kBlockBytes));
  }
};

// The fifth bits of 16 blocks' first halves, then those of their second: as masks of quads they lie in memory.
template <class Block>
struct FiveBits {
  static constexpr int kBlockBytes = sizeof(Block);
  [[gnu::always_inline]] static void unpack(const std::byte* blocks, Quad* quads) noexcept {
    alignas(64) uint64_t masks[8];
    _mm512_store_si512(masks, WordsOfBlocks<kBlockBytes, offsetof(Block, high_bits), 2>::load(blocks));
    Nibbles<Block>::unpack(blocks, quads);
    const __m512i sixteen = _mm512_set1_epi8(16);
    for (int i = 0; i < 4; ++i) {
      quads[i].first = _mm512_mask_add_epi8(quads[i].first, masks[i], quads[i].first, sixteen);
      quads[i].second = _mm512_mask_add_epi8(quads[i].second, masks[4 + i], quads[i].second, sixteen);
    }
  }
};

struct UnpackQ4_0 : Nibbles<quant::BlockQ4_0>, HalvesOfBlocks<sizeof(quant::BlockQ4_0), false> {
  static constexpr int kOffset = 8;
};
struct UnpackQ4_1 : Nibbles<quant::BlockQ4_1>, HalvesOfBlocks<sizeof(quant::BlockQ4_1), true> {
  static constexpr int kOffset = 0;
};
struct UnpackQ5_0 : FiveBits<quant::BlockQ5_0>, HalvesOfBlocks<sizeof(quant::BlockQ5_0), false> {
  static constexpr int kOffset = 16;
};
struct UnpackQ5_1 : FiveBits<quant::BlockQ5_1>, HalvesOfBlocks<sizeof(quant::BlockQ5_1), true> {
  static constexpr int kOffset = 0;
};
struct UnpackIQ4_NL : Nibbles<quant::BlockIQ4_NL>, HalvesOfBlocks<sizeof(quant::BlockIQ4_NL), false> {
  static constexpr int kOffset = 128;
  [[gnu::always_inline]] static void unpack(const std::byte* blocks, Quad* quads) noexcept {
    Nibbles<quant::BlockIQ4_NL>::unpack(blocks, quads);
    for (int i = 0; i < 4; ++i) quads[i] = look_up(quads[i], levels_iq4_nl());
  }
};

// Blocks of an odd number of bytes: a quad is loaded block by block.
struct UnpackMXFP4 {
  static constexpr int kBlockBytes = sizeof(quant::BlockMXFP4), kOffset = kOffsetMxfp4;
  static constexpr bool kHasMin = false;
  [[gnu::always_inline]] static void unpack(const std::byte* blocks, Quad* quads) noexcept {
    const auto load = [](const std::byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); };
    for (int i = 0; i < 4; ++i) {
      const std::byte* at = blocks + 4 * i * kBlockBytes + offsetof(quant::BlockMXFP4, nibbles);
      __m512i v = _mm512_castsi128_si512(load(at));
      v = _mm512_inserti32x4(v, load(at + kBlockBytes), 1);
      v = _mm512_inserti32x4(v, load(at + 2 * kBlockBytes), 2);
      quads[i] = look_up(split_nibbles(_mm512_inserti32x4(v, load(at + 3 * kBlockBytes), 3)), levels_mxfp4());
    }
  }
  // A window holds the exponents of four blocks: bytes 0, 17, 34 and 51, of which the odd ones are the upper bytes of
  // words.
  [[gnu::always_inline]] static ScalesOf16 scales(const std::byte* blocks) noexcept {
    static_assert(offsetof(quant::BlockMXFP4, exponent) == 0 && 12 * kBlockBytes + 64 <= 16 * kBlockBytes);
    const __m512i at = _mm512_broadcast_i64x2(_mm_setr_epi16(0, 8, 17, 25, 0, 8, 17, 25));
    __m512i words = _mm512_setzero_si512();
    for (int i = 0; i < 4; ++i)
      words = _mm512_mask_permutexvar_epi16(words, __mmask32{0xF} << (4 * i), at,
                                            _mm512_loadu_si512(blocks + 4 * i * kBlockBytes));
    const __m512i odd_by_8 = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 8, 0, 8));
    const __m512i e = _mm512_and_si512(
        _mm512_srlv_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(words)), odd_by_8), _mm512_set1_epi32(255));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23),
                  subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __mmask16 is_small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
    return {_mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, subnormal)), _mm512_setzero_ps()};
  }
};

// Sums of the 4 dwords of each block of four quads, in the order of blocks.
inline __m512i sums_of_quads(const __m512i* v) noexcept {
  const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
  const __m512i by_quads = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), by_quads);
}

// The integers of 16 blocks by quads: first halves of four blocks, then their second halves.
template <class Unpack>
struct ByQuads : Unpack {
  static constexpr int kBlockStride = 16, kHalfStride = 64;
  template <int kPlanes>
  [[gnu::always_inline]] static __m512i dots(const std::byte* blocks, const int8_t* q) noexcept {
    Quad quads[4];
    Unpack::unpack(blocks, quads);
    __m512i of_quads[4];
    for (int i = 0; i < 4; ++i, q += 128 * kPlanes) {
      of_quads[i] = add_dot(_mm512_setzero_si512(), quads[i], q);
      if constexpr (kPlanes == 2) of_quads[i] = add_dot(_mm512_slli_epi32(of_quads[i], 7), quads[i], q + 128);
    }
    return sums_of_quads(of_quads);
  }
};

using SixteenQ4_0 = ByQuads<UnpackQ4_0>;
using SixteenQ4_1 = ByQuads<UnpackQ4_1>;
using SixteenQ5_0 = ByQuads<UnpackQ5_0>;
using SixteenQ5_1 = ByQuads<UnpackQ5_1>;
using SixteenIQ4_NL = ByQuads<UnpackIQ4_NL>;
using SixteenMXFP4 = ByQuads<UnpackMXFP4>;

// 8 bits, two blocks in a register.
struct SixteenQ8_0 {
  static constexpr int kBlockBytes = sizeof(quant::BlockQ8_0), kOffset = 128;
  static constexpr bool kHasMin = false;
  static constexpr int kBlockStride = 32, kHalfStride = 16;

  // Sums of the 8 dwords of each block of eight pairs, in the order of blocks.
  static __m512i sums_of_pairs(const __m512i* v) noexcept {
    const auto halved = [](__m512i a, __m512i b) {
      return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const auto by_fours = [&](const __m512i* u) {
      const __m512i a = halved(u[0], u[1]), b = halved(u[2], u[3]);
      return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    };
    const __m512i first = by_fours(v), second = by_fours(v + 4);
    const __m512i by_parity =
        _mm512_add_epi32(_mm512_shuffle_i32x4(first, second, 0x88), _mm512_shuffle_i32x4(first, second, 0xDD));
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), by_parity);
  }

  template <int kPlanes>
  [[gnu::always_inline]] static __m512i dots(const std::byte* blocks, const int8_t* q) noexcept {
    const __m512i sign = _mm512_set1_epi8(-128);
    __m512i of_pairs[8];
    for (int i = 0; i < 8; ++i) {
      const std::byte* at = blocks + 2 * i * kBlockBytes + offsetof(quant::BlockQ8_0, q);
      const auto load = [](const std::byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); };
      const __m512i pair =
          _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(load(at)), load(at + kBlockBytes), 1), sign);
      const int8_t* of_pair = q + i / 2 * (128 * kPlanes) + i % 2 * 64;
      of_pairs[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), pair, _mm512_load_si512(of_pair));
      if constexpr (kPlanes == 2)
        of_pairs[i] = _mm512_dpbusd_epi32(_mm512_slli_epi32(of_pairs[i], 7), pair, _mm512_load_si512(of_pair + 128));
    }
    return sums_of_pairs(of_pairs);
  }

  // Two windows hold the scales of four blocks.
  [[gnu::always_inline]] static ScalesOf16 scales(const std::byte* blocks) noexcept {
    static_assert(3 * kBlockBytes + 2 <= 128 && 12 * kBlockBytes + 128 <= 16 * kBlockBytes);
    const __m512i at = _mm512_broadcast_i64x2(_mm_setr_epi16(0, 17, 34, 51, 0, 17, 34, 51));
    __m512i words = _mm512_setzero_si512();
    for (int i = 0; i < 4; ++i) {
      const std::byte* p = blocks + 4 * i * kBlockBytes;
      words = _mm512_or_si512(words, _mm512_maskz_permutex2var_epi16(__mmask32{0xF} << (4 * i), _mm512_loadu_si512(p),
                                                                     at, _mm512_loadu_si512(p + 64)));
    }
    return {_mm512_cvtph_ps(_mm512_castsi512_si256(words)), _mm512_setzero_ps()};
  }
};

// The terms of 16 blocks. q: of their first quad; sums and g of the first.
template <class Format, int kPlanes>
[[gnu::always_inline]] inline __m512 terms_of_16(const std::byte* blocks, const int8_t* q, const int32_t* sums,
                                                 const float* g) noexcept {
  __m512i dot = Format::template dots<kPlanes>(blocks, q);
  if constexpr (Format::kOffset != 0) dot = _mm512_sub_epi32(dot, _mm512_loadu_si512(sums));
  __m512 f = _mm512_cvtepi32_ps(dot);
  if constexpr (kPlanes == 2) f = _mm512_mul_ps(_mm512_set1_ps(0x1p-7f), f);
  const ScalesOf16 scales = Format::scales(blocks);
  if constexpr (!Format::kHasMin) return _mm512_mul_ps(scales.d, f);
  return _mm512_fmadd_ps(scales.d, f, _mm512_mul_ps(scales.m, _mm512_loadu_ps(g)));
}

// The terms of n blocks, a multiple of 16, which begin with a row. terms: aligned to 64.
template <class Format, int kPlanes>
[[gnu::always_inline]] inline void terms_of_blocks(const BlockActivations& x, int64_t n, const std::byte* blocks,
                                                   float* terms) noexcept {
  for (int64_t at = 0, quad = 0, block = 0; at < n; at += kTogether) {
    for (int64_t line = 0; line < kTogether * Format::kBlockBytes; line += 64)
      __builtin_prefetch(blocks + kBytesAhead + line);
    _mm512_store_ps(terms + at,
                    terms_of_16<Format, kPlanes>(blocks, x.q + quad * (128 * kPlanes), x.sums + block, x.g + block));
    blocks += kTogether * Format::kBlockBytes;
    quad += 4;
    quad = quad >= x.n_quads ? quad - x.n_quads : quad;
    block += kTogether;
    block = block >= x.n_blocks ? block - x.n_blocks : block;
  }
}

// Section 2.4 of the contract for four rows.
inline __m128 trees(const __m256* c) noexcept {
  const __m256 fours = _mm256_hadd_ps(_mm256_hadd_ps(c[0], c[1]), _mm256_hadd_ps(c[2], c[3]));
  return _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1));
}

constexpr int64_t kGroupMax = 8;  // rows

// Rows after which blocks in sixteens end with a row; at least as many as one tree takes.
constexpr int64_t group_rows(int64_t n_blocks) noexcept { return n_blocks % 4 == 0 ? 4 : kGroupMax; }

// visit(Format{}) with the format of 16 blocks that a type has; nothing: it has none.
template <class Visit>
GemmKernel with_sixteen(tensor::DType dtype, const Visit& visit) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0: return visit(SixteenQ4_0());
    case DType::Q4_1: return visit(SixteenQ4_1());
    case DType::Q5_0: return visit(SixteenQ5_0());
    case DType::Q5_1: return visit(SixteenQ5_1());
    case DType::Q8_0: return visit(SixteenQ8_0());
    case DType::IQ4_NL: return visit(SixteenIQ4_NL());
    case DType::MXFP4: return visit(SixteenMXFP4());
    default: return {};
  }
}

}  // namespace
}  // namespace assay::backend::cpu
