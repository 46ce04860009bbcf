// Matrix-matrix products of every quantised format by NEON, shared by the sets that differ in the instruction for
// signed bytes. Rows go through a panel in groups of 8, as signed bytes in the order that the instruction wants,
// against 4 columns of activations (column = token * planes + plane) that are read where they lie. Included by kernel
// files only; everything here is local to the file that includes it. The class Dot says of the instruction:
//   pack(rows, out)          16 elements of 8 rows to 8 registers
//   add(w, x, sum)           adds their products with 16 elements of the 4 columns x
//   kScaleRegisters, spread  how a number of each row lies beside the sums: sum[i] goes with register i %
//     kScaleRegisters
//   column(sum, c)           the sums of column c, rows in order
#pragma once

#include "backend/cpu/gemm/gemm_panels.h"
#include "backend/cpu/gemv/unpack_neon.h"

namespace assay::backend::cpu {
namespace {

constexpr int kRows = 8;
constexpr int kColumns = 4;

struct Sums {
  int32x4_t v[8];
};
inline Sums no_sums() noexcept {
  Sums sums;
  for (int32x4_t& v : sums.v) v = vdupq_n_s32(0);
  return sums;
}

// A block of 8 rows in the panel: packed weights of groups of 16, then for superblocks the groups' scales and minima
// (words of 8 rows each), then d and m.
template <class Unpack, bool kSuperblock>
struct Layout : Unpack {
  static constexpr int kElements = kSuperblock ? 256 : 32, kGroups = kElements / 16;
  static constexpr int64_t kScales = kGroups * 128, kMinima = kScales + (kSuperblock ? kGroups * 64 : 0);
  static constexpr int64_t kD = kMinima + (kSuperblock && Unpack::kHasMin ? kGroups * 16 : 0), kBytes = kD + 2 * 32;
};

template <class L>
int64_t panel_rows_of(const LinearTask& task) noexcept {
  return panel_rows<kRows>(task.k / L::kElements * L::kBytes);
}

// One row of a superblock: weights [16 groups], scales and minima into the words of its place among 8.
template <class Dot, class L>
inline void unpack_superblock(const LinearTask& task, const std::byte* p, int row, int8x16_t* w,
                              std::byte* out) noexcept {
  const auto block = L::open(task, p);
  for (int half = 0; half < 2; ++half) L::unpack(block, half, w + 8 * half);
  const SubScales s = L::sub_scales(block);
  int16_t scale[16], min[16];
  for (int half = 0; half < 2; ++half) {
    vst1q_s16(scale + 8 * half, s.scale[half]);
    if constexpr (L::kHasMin) vst1q_s16(min + 8 * half, s.min[half]);
  }
  for (int g = 0; g < 16; ++g) {
    Dot::spread(scale[g], row, reinterpret_cast<int32_t*>(out + L::kScales + 64 * g));
    if constexpr (L::kHasMin) __builtin_memcpy(out + L::kMinima + 16 * g + 2 * row, min + g, 2);
  }
}

template <class Dot, class L>
void build_group(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* out) noexcept {
  const int64_t block_bytes = L::block_bytes(task);
  const std::byte* p[kRows];
  rows_of_group<kRows>(task, row_begin, row_end, p);
  for (int64_t b = 0; b < task.k / L::kElements; ++b, out += L::kBytes) {
    int8x16_t w[kRows][L::kGroups];
    for (int i = 0; i < kRows; ++i) {
      if constexpr (L::kGroups == 2) {
        L::weights(p[i], w[i]);
      } else {
        unpack_superblock<Dot, L>(task, p[i], i, w[i], out);
      }
    }
    for (int g = 0; g < L::kGroups; ++g) {
      int8x16_t rows[kRows];
      for (int i = 0; i < kRows; ++i) rows[i] = w[i][g];
      Dot::pack(rows, reinterpret_cast<int8_t*>(out) + 128 * g);
    }
    const Scales s = L::scales(task, p);
    store_8(reinterpret_cast<float*>(out + L::kD), s.d);
    store_8(reinterpret_cast<float*>(out + L::kD + 32), s.m);
    for (const std::byte*& row : p) row += block_bytes;
  }
}

// The 4 columns at the block that a tile has come to.
struct Columns {
  const int8_t* x[kColumns];
  const int16_t* sums[kColumns];  // of each 16, or of each 32 where that is the block
  const float* d[kColumns];
};

template <int kPlanes>
Columns columns_of(const LinearTask& task, int64_t token, int64_t block) noexcept {
  Columns c;
  for (int column = 0; column < kColumns; ++column) {
    const int64_t row = smaller(token + column / kPlanes, task.n_tokens - 1), at = row * task.k;
    const bool first = column % kPlanes == 0;
    c.x[column] = (first ? task.x.q : task.x.l) + at;
    c.sums[column] = (first ? task.x.q_sums : task.x.l_sums) + at / task.x.group();
    c.d[column] = task.x.d + at / block;
  }
  return c;
}

// Sums of one block: I of the contract, and M where there are minima.
template <class Dot, class L>
inline void block_sums(const Columns& c, int64_t b, const std::byte* w, Ints8* dot, Ints8* minimum) noexcept {
  const auto* weights = reinterpret_cast<const int8_t*>(w);
  const auto add_group = [&](int g, Sums& sum) {
    const int8_t* x[kColumns];
    for (int column = 0; column < kColumns; ++column) x[column] = c.x[column] + L::kElements * b + 16 * g;
    Dot::add(weights + 128 * g, x, sum);
  };
  Sums total = no_sums();
  if constexpr (L::kGroups == 2) {
    add_group(0, total);
    add_group(1, total);
  } else {
    for (int g = 0; g < 16; g += L::kSubBlock / 16) {
      Sums sum = no_sums();
      for (int i = 0; i < L::kSubBlock / 16; ++i) add_group(g + i, sum);
      const auto* scales = reinterpret_cast<const int32_t*>(w + L::kScales + 64 * g);
      for (int i = 0; i < 8; ++i)
        total.v[i] = vmlaq_s32(total.v[i], sum.v[i], vld1q_s32(scales + 4 * (i % Dot::kScaleRegisters)));
    }
  }
  for (int column = 0; column < kColumns; ++column) {
    dot[column] = Dot::column(total, column);
    if constexpr (!L::kHasMin) continue;
    if constexpr (L::kGroups == 2) {
      minimum[column] = {vdupq_n_s32(c.sums[column][b]), vdupq_n_s32(c.sums[column][b])};
    } else {
      Ints8 m = {vdupq_n_s32(0), vdupq_n_s32(0)};
      for (int g = 0; g < 16; ++g) {
        const int16x8_t of_rows = vld1q_s16(reinterpret_cast<const int16_t*>(w + L::kMinima + 16 * g));
        m.low = vmlal_n_s16(m.low, vget_low_s16(of_rows), c.sums[column][16 * b + g]);
        m.high = vmlal_high_n_s16(m.high, of_rows, c.sums[column][16 * b + g]);
      }
      minimum[column] = m;
    }
  }
}

// F or G of the contract.
template <int kPlanes>
inline Floats8 join(const Ints8* of_token) noexcept {
  if constexpr (kPlanes == 1) return to_floats(of_token[0]);
  return fma_8(splat_8(0x1p-7f), to_floats(of_token[1]), to_floats(of_token[0]));
}

// The tree of the contract over the 8 chunks, then the bias.
inline void store_rows(const LinearTask& task, const Floats8* c, int64_t token, int64_t row, int64_t row_end) noexcept {
  const auto pair = [c](int i) { return add_8(c[i], c[i + 1]); };
  float sum[kRows];
  store_8(sum, add_8(add_8(pair(0), pair(2)), add_8(pair(4), pair(6))));
  float* y = task.y.data + token * task.y.stride;
  for (int64_t r = row; r < smaller(row + kRows, row_end); ++r)
    y[r] = task.bias == nullptr ? sum[r - row] : sum[r - row] + task.bias[r];
}

// 8 rows x 4 columns.
template <class Dot, class L, int kPlanes>
void run_tile(const LinearTask& task, const std::byte* panel, int64_t token, int64_t row, int64_t row_end) noexcept {
  constexpr int kTokens = kColumns / kPlanes;
  const Columns columns = columns_of<kPlanes>(task, token, L::kElements);
  const int64_t n_blocks = task.k / L::kElements;
  Floats8 chunks[kTokens][8];
  for (int64_t i = 0; i < 8; ++i) {
    Floats8 c[kTokens];
    for (int t = 0; t < kTokens; ++t) c[t] = zero_8();
    for (int64_t b = i * n_blocks / 8; b < (i + 1) * n_blocks / 8; ++b) {
      const std::byte* w = panel + b * L::kBytes;
      Ints8 dot[kColumns], minimum[kColumns];
      block_sums<Dot, L>(columns, b, w, dot, minimum);
      const auto* scales = reinterpret_cast<const float*>(w + L::kD);
      const Floats8 d = load_8(scales);
      for (int t = 0; t < kTokens; ++t) {
        const Floats8 f = join<kPlanes>(dot + t * kPlanes);
        Floats8 term;
        if constexpr (L::kHasMin) {
          term = fma_8(d, f, mul_8(load_8(scales + kRows), join<kPlanes>(minimum + t * kPlanes)));
        } else {
          term = mul_8(d, f);
        }
        c[t] = fma_8(splat_8(columns.d[t * kPlanes][b]), term, c[t]);
      }
    }
    for (int t = 0; t < kTokens; ++t) chunks[t][i] = c[t];
  }
  for (int t = 0; t < kTokens && token + t < task.n_tokens; ++t) store_rows(task, chunks[t], token + t, row, row_end);
}

template <class Dot, class L>
void gemm(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const int64_t group_bytes = task.k / L::kElements * L::kBytes;
  const auto build = [&](int64_t row, int64_t end, int64_t group) {
    build_group<Dot, L>(task, row, end, scratch + group * group_bytes);
  };
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t token = 0; token < task.n_tokens; token += kColumns / task.x.planes) {
      for (int64_t row = begin; row < end; row += kRows) {
        const std::byte* group = scratch + (row - begin) / kRows * group_bytes;
        task.x.planes == 2 ? run_tile<Dot, L, 2>(task, group, token, row, end)
                           : run_tile<Dot, L, 1>(task, group, token, row, end);
      }
    }
  };
  walk_panels<kRows>(row_begin, row_end, panel_rows_of<L>(task), build, run);
}

template <class L>
size_t scratch_bytes(const LinearTask& task) noexcept {
  return static_cast<size_t>(panel_rows_of<L>(task) / kRows * (task.k / L::kElements) * L::kBytes);
}

template <class Dot, bool kSuperblock>
struct KernelOf {
  template <class Unpack>
  GemmKernel of() const noexcept {
    return {&gemm<Dot, Layout<Unpack, kSuperblock>>, &scratch_bytes<Layout<Unpack, kSuperblock>>, kRows};
  }
};

template <class Dot>
GemmKernel find_gemm(const LinearTask& task) noexcept {
  const tensor::DType dtype = task.format->dtype;
  return task.format->activation == quant::Activation::a32 ? with_unpack_a32(dtype, KernelOf<Dot, false>{})
                                                           : with_unpack_a256(dtype, KernelOf<Dot, true>{});
}

}  // namespace
}  // namespace assay::backend::cpu
