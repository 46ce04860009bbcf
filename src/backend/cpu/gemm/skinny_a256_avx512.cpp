// Few tokens against superblocks of 256 by AVX-512 VNNI. 16 rows are the lanes of a register; the packed weights are
// transposed before they are unpacked, which takes a half of the shuffles of the other order, or fewer.
//   A sum S of some weights w - kCentre times activations fits 16 bits, so that one vpdpwssd multiplies it with its
// sub-block's integer scale and adds it to the superblock's I: its lower word meets the scale, its upper word a 0.
// Where the true weights are not centred (the formats with minima), I gets kCentre times the sum of scales times
// activations back, as exactly.
#include "backend/cpu/gemm/skinny_avx512.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

// Of 16 rows: weights without sign, 4 of every row in a register; the scales as dwords; pairs of scales and of minima
// as words; d and m.
template <int kScales, bool kHasMin>
struct alignas(64) GroupPanel {
  uint8_t w[64][64];
  int32_t scale[kScales][16];
  int32_t scale_pairs[kHasMin ? 4 : 1][16], minima[kHasMin ? 4 : 1][16];
  float d[16], m[16];
};

inline void put(void* out, __m512i v) noexcept { _mm512_store_si512(out, v); }

// Bytes `first` and `first + step` of each dword as words.
inline __m512i bytes_to_words(__m512i dwords, int first, int second) noexcept {
  const int32_t order = static_cast<int32_t>(0x80008000u) | first | second << 16;
  const __m512i offsets = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x00040004, 0x00080008, 0x000C000C));
  return _mm512_shuffle_epi8(dwords, _mm512_add_epi8(_mm512_set1_epi32(order), offsets));
}

// The head of Q4_K and Q5_K: d and m, then 8 scales and 8 minima of 6 bits.
inline void put_head(const __m512i* head, GroupPanel<8, true>& out) noexcept {
  const __m512i low6 = _mm512_set1_epi32(0x3F3F3F3F), low4 = _mm512_set1_epi32(0x0F0F0F0F);
  const auto upper = [&](__m512i low, __m512i high) {
    return _mm512_and_si512(choose_bits(low4, low, _mm512_srli_epi32(high, 2)), low6);
  };
  const __m512i scales[2] = {_mm512_and_si512(head[1], low6), upper(head[3], head[1])};
  const __m512i minima[2] = {_mm512_and_si512(head[2], low6), upper(_mm512_srli_epi32(head[3], 4), head[2])};
  const __m512i byte = _mm512_set1_epi32(0xFF);
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < 4; ++i) put(out.scale[4 * h + i], _mm512_and_si512(_mm512_srli_epi32(scales[h], 8 * i), byte));
    for (int i = 0; i < 2; ++i) {
      put(out.scale_pairs[2 * h + i], bytes_to_words(scales[h], 2 * i, 2 * i + 1));
      put(out.minima[2 * h + i], bytes_to_words(minima[h], 2 * i, 2 * i + 1));
    }
  }
  _mm512_store_ps(out.d, low_halves(head[0]));
  _mm512_store_ps(out.m, _mm512_xor_ps(high_halves(head[0]), _mm512_set1_ps(-0.0f)));
}

struct SkinnyQ4_K {
  static constexpr bool kHasMin = true;
  static constexpr int kScales = 8, kCentre = 8, kDwordsPerSum = 8;
  static void unpack(const std::byte* p, int64_t row_bytes, Ahead& ahead, GroupPanel<8, true>& out) noexcept {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i v[4];
    load_columns(p, row_bytes, ahead, v);
    put_head(v, out);
    for (int i = 0; i < 8; ++i) {
      load_columns(p + offsetof(quant::BlockQ4_K, nibbles) + 16 * i, row_bytes, ahead, v);
      uint8_t(*const w)[64] = out.w + 16 * (i / 2) + 4 * (i % 2);
      for (int j = 0; j < 4; ++j) {
        put(w[j], _mm512_and_si512(v[j], low));
        put(w[8 + j], _mm512_and_si512(_mm512_srli_epi16(v[j], 4), low));
      }
    }
  }
};

struct SkinnyQ5_K {
  static constexpr bool kHasMin = true;
  static constexpr int kScales = 8, kCentre = 16, kDwordsPerSum = 4;
  static void unpack(const std::byte* p, int64_t row_bytes, Ahead& ahead, GroupPanel<8, true>& out) noexcept {
    const __m512i low4 = _mm512_set1_epi8(15), low5 = _mm512_set1_epi8(31);
    __m512i v[4], high[8];
    load_columns(p, row_bytes, ahead, v);
    put_head(v, out);
    for (int i = 0; i < 2; ++i)
      load_columns(p + offsetof(quant::BlockQ5_K, high_bits) + 16 * i, row_bytes, ahead, high + 4 * i);
    for (int i = 0; i < 8; ++i) {
      load_columns(p + offsetof(quant::BlockQ5_K, nibbles) + 16 * i, row_bytes, ahead, v);
      uint8_t(*const w)[64] = out.w + 16 * (i / 2) + 4 * (i % 2);
      for (int j = 0; j < 4; ++j) {  // bits i / 2 * 2 and the next one go to bit 4
        const __m512i bits = high[4 * (i % 2) + j];
        const auto at_4 = [&](int bit) {
          const auto by = static_cast<unsigned>(bit <= 4 ? 4 - bit : bit - 4);
          return bit <= 4 ? _mm512_slli_epi16(bits, by) : _mm512_srli_epi16(bits, by);
        };
        put(w[j], _mm512_and_si512(choose_bits(low4, v[j], at_4(i / 2 * 2)), low5));
        put(w[8 + j], _mm512_and_si512(choose_bits(low4, _mm512_srli_epi16(v[j], 4), at_4(i / 2 * 2 + 1)), low5));
      }
    }
  }
};

struct SkinnyQ6_K {
  static constexpr bool kHasMin = false;
  static constexpr int kScales = 16, kCentre = 32, kDwordsPerSum = 2;
  static void unpack(const std::byte* p, int64_t row_bytes, Ahead& ahead, GroupPanel<16, false>& out) noexcept {
    const __m512i low4 = _mm512_set1_epi8(15), low6 = _mm512_set1_epi8(63);
    const auto join = [&](__m512i nibbles, __m512i pairs) {
      return _mm512_and_si512(choose_bits(low4, nibbles, pairs), low6);
    };
    for (int i = 0; i < 4; ++i) {  // 16 bytes of a half's 32
      const int half = i / 2, part = i % 2;
      const std::byte* nibbles = p + offsetof(quant::BlockQ6_K, nibbles) + 64 * half + 16 * part;
      __m512i first[4], second[4], pairs[4];
      load_columns(nibbles, row_bytes, ahead, first);
      load_columns(nibbles + 32, row_bytes, ahead, second);
      load_columns(p + offsetof(quant::BlockQ6_K, high_bits) + 32 * half + 16 * part, row_bytes, ahead, pairs);
      uint8_t(*const w)[64] = out.w + 32 * half + 4 * part;
      for (int j = 0; j < 4; ++j) {
        put(w[j], join(first[j], _mm512_slli_epi16(pairs[j], 4)));
        put(w[8 + j], join(second[j], _mm512_slli_epi16(pairs[j], 2)));
        put(w[16 + j], join(_mm512_srli_epi16(first[j], 4), pairs[j]));
        put(w[24 + j], join(_mm512_srli_epi16(second[j], 4), _mm512_srli_epi16(pairs[j], 2)));
      }
    }
    __m512i scales[4];
    load_columns(p + offsetof(quant::BlockQ6_K, sub_scales), row_bytes, ahead, scales);
    const __m512i word = _mm512_set1_epi32(0xFFFF);
    for (unsigned i = 0; i < 16; ++i) {
      put(out.scale[i],
          _mm512_and_si512(_mm512_srai_epi32(_mm512_slli_epi32(scales[i / 4], 24 - 8 * (i % 4)), 24), word));
    }
    _mm512_store_ps(out.d, high_halves(load_column(p + offsetof(quant::BlockQ6_K, d) - 2, row_bytes)));
  }
};

template <class Format, int kPlanes>
struct Skinny {
  static constexpr int kStripRows = kGroups * kGroupRows, kBlock = 256, kBlocksNear = 1, kTokens = kColumns / kPlanes;
  static constexpr int kLinesOfRun = 32;
  static constexpr int kSums = 64 / Format::kDwordsPerSum, kSumsOfScale = kSums / Format::kScales;
  static_assert(4 * Format::kDwordsPerSum * Format::kCentre * 127 <= 32767);

  struct Panel {
    GroupPanel<Format::kScales, Format::kHasMin> groups[kGroups];
  };
  // Of each column the activations, what its sums begin with (-kCentre times the activations of a sum), and pairs of
  // the sums of 32 as words.
  struct alignas(64) Side {
    int8_t x[kColumns][256];
    int32_t start[kColumns][kSums];
    int32_t pairs[kColumns][Format::kHasMin ? 4 : 1];
    float d[kTokens];
  };

  static void unpack(const LinearTask& task, const std::byte* p, Ahead& ahead, Panel& panel) noexcept {
    for (int g = 0; g < kGroups; ++g)
      Format::unpack(p + g * kGroupRows * task.row_bytes, task.row_bytes, ahead, panel.groups[g]);
  }

  static void lay(const LinearTask& task, int64_t token, int64_t n, int64_t b, Side& side) noexcept {
    for (int64_t t = 0; t < n; ++t) {
      const int64_t at = (token + t) * task.k + 256 * b;
      lay_column(task.x.q + at, task.x.q_sums + at / 16, side, t * kPlanes);
      if constexpr (kPlanes == 2) lay_column(task.x.l + at, task.x.l_sums + at / 16, side, t * kPlanes + 1);
      side.d[t] = task.x.d[(token + t) * (task.k / 256) + b];
    }
  }

  // sums: of 16 activations each.
  static void lay_column(const int8_t* x, const int16_t* sums, Side& side, int64_t column) noexcept {
    const __m256i of_16 = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums));
    for (int i = 0; i < 4; ++i) {
      const __m512i v = _mm512_loadu_si512(x + 64 * i);
      put(side.x[column] + 64 * i, v);
      if constexpr (Format::kDwordsPerSum == 2) {
        const __m512i of_4 = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(Format::kCentre), v);
        const __m512i of_8 =
            _mm512_sub_epi64(_mm512_setzero_si512(), _mm512_add_epi32(of_4, _mm512_srli_epi64(of_4, 32)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(side.start[column] + 8 * i), _mm512_cvtepi64_epi32(of_8));
      }
    }
    if constexpr (Format::kDwordsPerSum == 4) {
      _mm512_storeu_si512(side.start[column],
                          _mm512_mullo_epi32(_mm512_cvtepi16_epi32(of_16), _mm512_set1_epi32(-Format::kCentre)));
    } else if constexpr (Format::kDwordsPerSum == 8) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(side.start[column]),
                          _mm256_madd_epi16(of_16, _mm256_set1_epi16(-Format::kCentre)));
    }
    if constexpr (Format::kHasMin) {
      const __m256i of_32 = _mm256_madd_epi16(of_16, _mm256_set1_epi16(1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(side.pairs[column]), _mm256_cvtepi32_epi16(of_32));
    }
  }

  // Sums over pairs of words.
  template <int kUsed>
  static void add_pairs(const Panel& panel, const Side& side, bool of_minima, __m512i (&sum)[kUsed][kGroups]) noexcept {
    for (int column = 0; column < kUsed; ++column) sum[column][0] = sum[column][1] = _mm512_setzero_si512();
    for (int p = 0; p < 4; ++p) {
      __m512i w[kGroups];
      for (int g = 0; g < kGroups; ++g)
        w[g] = _mm512_load_si512((of_minima ? panel.groups[g].minima : panel.groups[g].scale_pairs)[p]);
      for (int column = 0; column < kUsed; ++column) {
        const __m512i x = _mm512_set1_epi32(side.pairs[column][p]);
        for (int g = 0; g < kGroups; ++g) sum[column][g] = _mm512_dpwssd_epi32(sum[column][g], w[g], x);
      }
    }
  }

  // I of every column.
  template <int kUsed>
  static void dots(const Panel& panel, const Side& side, Ahead& ahead, __m512i (&total)[kUsed][kGroups]) noexcept {
    if constexpr (Format::kHasMin) {
      add_pairs(panel, side, false, total);
      for (int column = 0; column < kUsed; ++column) {
        for (int g = 0; g < kGroups; ++g)
          total[column][g] = _mm512_slli_epi32(total[column][g], Format::kCentre == 8 ? 3 : 4);
      }
    } else {
      for (int column = 0; column < kUsed; ++column) total[column][0] = total[column][1] = _mm512_setzero_si512();
    }
#pragma GCC unroll 1
    for (int scale = 0; scale < Format::kScales; ++scale) {
      for (int i = 0; i < kLinesOfRun / Format::kScales; ++i) ahead.fetch_line();
#pragma GCC unroll 2
      for (int part = 0; part < kSumsOfScale; ++part) {
        const int i = scale * kSumsOfScale + part;
        __m512i sum[kUsed][kGroups];
        for (int column = 0; column < kUsed; ++column)
          sum[column][0] = sum[column][1] = _mm512_set1_epi32(side.start[column][i]);
        const uint8_t(*const w[kGroups])[64] = {panel.groups[0].w + i * Format::kDwordsPerSum,
                                                panel.groups[1].w + i * Format::kDwordsPerSum};
        add_dots<Format::kDwordsPerSum>(w, side.x[0] + 4 * i * Format::kDwordsPerSum, 256, sum);
        for (int g = 0; g < kGroups; ++g) {
          const __m512i s = _mm512_load_si512(panel.groups[g].scale[scale]);
          for (int column = 0; column < kUsed; ++column)
            total[column][g] = _mm512_dpwssd_epi32(total[column][g], sum[column][g], s);
        }
      }
    }
  }

  template <int kUsed>
  static void run(const Panel* panels, const Side* sides, int64_t, int64_t, Ahead& ahead, float* c) noexcept {
    constexpr int kUsedColumns = kUsed * kPlanes;
    __m512i total[kUsedColumns][kGroups], minima[kUsedColumns][kGroups];
    dots(*panels, *sides, ahead, total);
    if constexpr (Format::kHasMin) add_pairs(*panels, *sides, true, minima);
    for (int t = 0; t < kUsed; ++t) {
      const __m512 d_of_token = _mm512_set1_ps(sides->d[t]);
      for (int g = 0; g < kGroups; ++g) {
        const auto& group = panels->groups[g];
        const __m512 f = join_columns<kPlanes>(total, t, g), d = _mm512_load_ps(group.d);
        __m512 term;
        if constexpr (Format::kHasMin) {
          term = _mm512_fmadd_ps(d, f, _mm512_mul_ps(_mm512_load_ps(group.m), join_columns<kPlanes>(minima, t, g)));
        } else {
          term = _mm512_mul_ps(d, f);
        }
        float* const chain = c + (t * kGroups + g) * kGroupRows;
        _mm512_store_ps(chain, _mm512_fmadd_ps(d_of_token, term, _mm512_load_ps(chain)));
      }
    }
  }
};

template <class Format>
GemmKernel kernel(int planes) noexcept {
  return planes == 2 ? skinny_kernel<Skinny<Format, 2>>() : skinny_kernel<Skinny<Format, 1>>();
}

}  // namespace

GemmKernel skinny_a256_avx512(tensor::DType dtype, int planes) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_K: return kernel<SkinnyQ4_K>(planes);
    case DType::Q5_K: return kernel<SkinnyQ5_K>(planes);
    case DType::Q6_K: return kernel<SkinnyQ6_K>(planes);
    default: return {};
  }
}

}  // namespace assay::backend::cpu
