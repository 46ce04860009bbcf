// Few tokens against blocks of 32 by AVX-512 VNNI. 16 rows are the lanes of a register; the packed weights are
// transposed before they are unpacked.
#include "backend/cpu/gemm/skinny_avx512.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

// A block of 16 rows: weights as weight + kOffset without sign, 4 of every row in a register; d and m.
struct alignas(64) GroupPanel {
  uint8_t w[8][64];
  float d[16], m[16];
};

inline void put_nibbles(const std::byte* p, int64_t row_bytes, Ahead& ahead, GroupPanel& out) noexcept {
  const __m512i low = _mm512_set1_epi8(15);
  __m512i v[4];
  load_columns(p, row_bytes, ahead, v);
  for (int j = 0; j < 4; ++j) {
    _mm512_store_si512(out.w[j], _mm512_and_si512(v[j], low));
    _mm512_store_si512(out.w[4 + j], _mm512_and_si512(_mm512_srli_epi16(v[j], 4), low));
  }
}

struct SkinnyQ4_0 {
  static constexpr bool kHasMin = false;
  static constexpr int kOffset = 8;
  static void unpack(const std::byte* p, int64_t row_bytes, Ahead& ahead, GroupPanel& out) noexcept {
    put_nibbles(p + offsetof(quant::BlockQ4_0, nibbles), row_bytes, ahead, out);
    _mm512_store_ps(out.d, low_halves(load_column(p, row_bytes)));
  }
};

struct SkinnyQ4_1 {
  static constexpr bool kHasMin = true;
  static constexpr int kOffset = 0;
  static void unpack(const std::byte* p, int64_t row_bytes, Ahead& ahead, GroupPanel& out) noexcept {
    put_nibbles(p + offsetof(quant::BlockQ4_1, nibbles), row_bytes, ahead, out);
    const __m512i head = load_column(p, row_bytes);
    _mm512_store_ps(out.d, low_halves(head));
    _mm512_store_ps(out.m, high_halves(head));
  }
};

struct SkinnyQ8_0 {
  static constexpr bool kHasMin = false;
  static constexpr int kOffset = 128;
  static void unpack(const std::byte* p, int64_t row_bytes, Ahead& ahead, GroupPanel& out) noexcept {
    for (int i = 0; i < 2; ++i) {
      __m512i v[4];
      load_columns(p + offsetof(quant::BlockQ8_0, q) + 16 * i, row_bytes, ahead, v);
      for (int j = 0; j < 4; ++j) _mm512_store_si512(out.w[4 * i + j], _mm512_xor_si512(v[j], _mm512_set1_epi8(-128)));
    }
    _mm512_store_ps(out.d, low_halves(load_column(p, row_bytes)));
  }
};

template <class Format, int kPlanes>
struct Skinny {
  static constexpr int kStripRows = kGroups * kGroupRows, kBlock = 32, kBlocksNear = 8, kTokens = kColumns / kPlanes;
  static constexpr int kLinesOfRun = 3;

  struct Panel {
    GroupPanel groups[kGroups];
  };
  // Of each column the activations and what its sum begins with; of each token G of the contract and d.
  struct alignas(64) Side {
    int8_t x[kColumns][32];
    int32_t start[kColumns];
    float g[kTokens], d[kTokens];
  };

  static void unpack(const LinearTask& task, const std::byte* p, Ahead& ahead, Panel& panel) noexcept {
    for (int g = 0; g < kGroups; ++g)
      Format::unpack(p + g * kGroupRows * task.row_bytes, task.row_bytes, ahead, panel.groups[g]);
  }

  static void lay(const LinearTask& task, int64_t token, int64_t n, int64_t b, Side& side) noexcept {
    for (int64_t t = 0; t < n; ++t) {
      const int64_t block = (token + t) * (task.k / 32) + b;
      side.d[t] = task.x.d[block];
      side.g[t] = static_cast<float>(task.x.q_sums[block]);
      lay_column(task.x.q + 32 * block, task.x.q_sums[block], side, t * kPlanes);
      if constexpr (kPlanes == 2) {
        side.g[t] = __builtin_fmaf(0x1p-7f, static_cast<float>(task.x.l_sums[block]), side.g[t]);
        lay_column(task.x.l + 32 * block, task.x.l_sums[block], side, t * kPlanes + 1);
      }
    }
  }

  static void lay_column(const int8_t* x, int32_t sum, Side& side, int64_t column) noexcept {
    __builtin_memcpy(side.x[column], x, 32);
    side.start[column] = -Format::kOffset * sum;
  }

  template <int kUsed>
  static void run(const Panel* panels, const Side* sides, int64_t step, int64_t n, Ahead& ahead,
                  float* chains) noexcept {
    __m512 c[kUsed][kGroups];
    for (int t = 0; t < kUsed; ++t) {
      for (int g = 0; g < kGroups; ++g) c[t][g] = _mm512_load_ps(chains + (t * kGroups + g) * kGroupRows);
    }
#pragma GCC unroll 1
    for (int64_t b = 0; b < n; ++b, ++panels, sides += step) {
      for (int i = 0; i < kLinesOfRun; ++i) ahead.fetch_line();
      __m512i sum[kUsed * kPlanes][kGroups];
      for (int column = 0; column < kUsed * kPlanes; ++column) {
        sum[column][0] = sum[column][1] =
            Format::kOffset == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(sides->start[column]);
      }
      const uint8_t(*const w[kGroups])[64] = {panels->groups[0].w, panels->groups[1].w};
      add_dots<8>(w, sides->x[0], 32, sum);
      for (int t = 0; t < kUsed; ++t) {
        for (int g = 0; g < kGroups; ++g) {
          const __m512 f = join_columns<kPlanes>(sum, t, g), d = _mm512_load_ps(panels->groups[g].d);
          __m512 term;
          if constexpr (Format::kHasMin) {
            term =
                _mm512_fmadd_ps(d, f, _mm512_mul_ps(_mm512_load_ps(panels->groups[g].m), _mm512_set1_ps(sides->g[t])));
          } else {
            term = _mm512_mul_ps(d, f);
          }
          c[t][g] = _mm512_fmadd_ps(_mm512_set1_ps(sides->d[t]), term, c[t][g]);
        }
      }
    }
    for (int t = 0; t < kUsed; ++t) {
      for (int g = 0; g < kGroups; ++g) _mm512_store_ps(chains + (t * kGroups + g) * kGroupRows, c[t][g]);
    }
  }
};

template <class Format>
GemmKernel kernel(int planes) noexcept {
  return planes == 2 ? skinny_kernel<Skinny<Format, 2>>() : skinny_kernel<Skinny<Format, 1>>();
}

}  // namespace

GemmKernel skinny_a32_avx512(tensor::DType dtype, int planes) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0: return kernel<SkinnyQ4_0>(planes);
    case DType::Q4_1: return kernel<SkinnyQ4_1>(planes);
    case DType::Q8_0: return kernel<SkinnyQ8_0>(planes);
    default: return {};
  }
}

}  // namespace assay::backend::cpu
