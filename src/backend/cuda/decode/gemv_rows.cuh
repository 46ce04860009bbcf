// Decode: rows of one or a few tokens (gemv.cu, experts/expert_gemv.cu, experts/expert_token.cu), bound by reading the
// weights. A warp takes a row; four neighbouring lanes take one of the 8 chunks of the contract and walk its blocks, so
// every chain is summed in place and the tree is three shuffles at the end.
//
//   warp, a row        lanes 0 1 2 3     4 5 6 7     ..     28 29 30 31
//                      chunk 0           chunk 1            chunk 7          of contract dot/1
//   superblocks        the four lanes share one: a quarter of its integers each, summed by two shuffles, one term, one chain
//   blocks of 32       each lane has the next one of four: four terms, which enter the chunk's chain in order
//   memory             weights straight from memory to registers, two steps ahead; activations from the caches
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cuda/decode/gemv_formats.cuh"
#include "backend/cuda/kernels/limits.h"
#include "backend/cuda/linear/format_list.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/lanes.h"
#include "quant/activations.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

// Blocks of threads: their warps, and how many run at once on a multiprocessor and on an H200.
inline constexpr int kGemvWarps = 4, kGemvBlocksPerSm = 4;
inline constexpr int64_t kGemvBlocksMax = 132 * kGemvBlocksPerSm;

struct GemvTask {
  Parts w;
  int32_t format = 0;  // index into the list of formats of the kind
  int32_t n_rows = 0, n_blocks = 0;
  int32_t first_block = 0, n_thread_blocks = 0;  // of threads
  const float* bias = nullptr;
  float* y = nullptr;
};

__device__ inline int32_t group_sum(int32_t x) {  // over the four lanes of a chunk
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

// A lane's share of a block of activations.
template <class Format, int kPlanes>
struct LaneX {
  Words low[kPlanes], high[Format::kBlock == 256 ? kPlanes : 1];  // blocks of 32: low alone
  int32_t sums[kPlanes][Format::kBlock == 256 ? 4 : 1];           // of 16 elements each; of the 32
  float d;

  __device__ void load(const quant::Activations& x, int64_t at, int part) {
    d = x.d[at];
#pragma unroll
    for (int plane = 0; plane < kPlanes; ++plane) {
      const int8_t* q = (plane == 0 ? x.q : x.l) + at * Format::kBlock;
      const int16_t* of_groups = plane == 0 ? x.q_sums : x.l_sums;
      if constexpr (Format::kBlock == 256) {
        const auto* a = reinterpret_cast<const uint4*>(q + Format::low_run(part));
        const auto* b = reinterpret_cast<const uint4*>(q + Format::high_run(part));
        low[plane] = words_of(a[0], a[1]);
        high[plane] = words_of(b[0], b[1]);
        const auto* pairs = reinterpret_cast<const short2*>(of_groups + at * 16);
        const short2 first = pairs[Format::low_run(part) / 32], second = pairs[Format::high_run(part) / 32];
        sums[plane][0] = first.x, sums[plane][1] = first.y, sums[plane][2] = second.x, sums[plane][3] = second.y;
      } else {
        const auto* a = reinterpret_cast<const uint4*>(q);
        low[plane] = words_of(a[0], a[1]);
        sums[plane][0] = of_groups[at];
      }
    }
  }
};

// Superblocks: the four lanes share a block.
template <class Format, int kPlanes>
__device__ float term_of(const Lane256& lane, const LaneX<Format, kPlanes>& x) {
  int32_t i[kPlanes], m[kPlanes];
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane) {
    const int32_t* sums = x.sums[plane];
    m[plane] = 0;
    if constexpr (Format::kHasMin) {
      i[plane] = lane.scale[0] * dot_8(lane.low, x.low[plane]) + lane.scale[2] * dot_8(lane.high, x.high[plane]);
      m[plane] = group_sum(lane.min[0] * (sums[0] + sums[1]) + lane.min[2] * (sums[2] + sums[3]));
    } else {
      i[plane] = lane.scale[0] * (dot_4(lane.low.w, x.low[plane].w) - lane.offset * sums[0]) +
                 lane.scale[1] * (dot_4(lane.low.w + 4, x.low[plane].w + 4) - lane.offset * sums[1]) +
                 lane.scale[2] * (dot_4(lane.high.w, x.high[plane].w) - lane.offset * sums[2]) +
                 lane.scale[3] * (dot_4(lane.high.w + 4, x.high[plane].w + 4) - lane.offset * sums[3]);
    }
    i[plane] = group_sum(i[plane]);
  }
  const float f = kPlanes == 2 ? quant::join_planes(i[0], i[kPlanes - 1]) : static_cast<float>(i[0]);
  const float g = kPlanes == 2 ? quant::join_planes(m[0], m[kPlanes - 1]) : static_cast<float>(m[0]);
  return quant::block_term(Format::kHasMin, lane.scales, f, g);
}

// Blocks of 32: each of the four lanes has its own.
template <class Format, int kPlanes>
__device__ float term_of(const Lane32& lane, const LaneX<Format, kPlanes>& x) {
  int32_t i[kPlanes], m[kPlanes];
#pragma unroll
  for (int plane = 0; plane < kPlanes; ++plane) {
    i[plane] = dot_8(lane.w, x.low[plane]) - lane.offset * x.sums[plane][0];
    m[plane] = Format::kHasMin ? x.sums[plane][0] : 0;
  }
  const float f = kPlanes == 2 ? quant::join_planes(i[0], i[kPlanes - 1]) : static_cast<float>(i[0]);
  const float g = kPlanes == 2 ? quant::join_planes(m[0], m[kPlanes - 1]) : static_cast<float>(m[0]);
  return quant::block_term(Format::kHasMin, lane.scale, f, g);
}

// One matrix, or two of one format and shape, which are walked together: row r of each, then the next row.
// Blocks of two are numbered in 32 bits, which saves a third of the instructions (kernels/expert_table.h limits them).
template <int n>
struct GemvMatrices {
  static constexpr int kN = n;
  using BlockNumber = std::conditional_t<n == 1, int64_t, uint32_t>;
  const Parts* w[n];
  int n_rows, n_blocks;
};

// Rows row, row + row_step, ... of the matrices against n_tokens tokens, at most kTokens, of which the first has row
// x_row of the activations; by a warp. take(i, t, row, y): product of the row of matrix i and token t, the same in all
// lanes. The weights of the next two steps are on their way while the current ones are multiplied, from row to row too.
template <class Format, int kPlanes, int kTokens, class Matrices, class Take>
__device__ void run_rows(const Matrices& matrices, const quant::Activations& x, int x_row, int n_tokens, int row,
                         int row_step, Take&& take) {
  const int lane = threadIdx.x % 32, chunk = lane / 4, part = lane % 4, n_blocks = matrices.n_blocks;
  constexpr int kStep = Format::kBlock == 256 ? 1 : 4;  // blocks that the four lanes take at a time
  const int offset = kStep == 4 ? part : 0;
  const int begin = static_cast<int>(quant::chunk_begin(chunk, n_blocks)),
            end = static_cast<int>(quant::chunk_begin(chunk + 1, n_blocks));
  const int longest = (n_blocks + 7) / 8;  // all lanes walk as far, for the shuffles
  const auto block_at = [&](int i) {
    return min(begin + i + offset, n_blocks - 1);
  };  // past the chunk's end: read and left out
  // Step i of a row of a matrix, and the one after it: the row and the step, a step long.
  struct Step {
    int row, matrix, i;
  };
  const auto load = [&](Step s) {
    const Parts& w = s.matrix == 0 ? *matrices.w[0] : *matrices.w[Matrices::kN - 1];
    using Number = typename Matrices::BlockNumber;
    return Format::load(
        w, static_cast<Number>(s.row) * static_cast<Number>(n_blocks) + static_cast<Number>(block_at(s.i)), part);
  };
  const auto after = [&](Step s) {
    if (s.i + kStep < longest) return Step{s.row, s.matrix, s.i + kStep};
    return s.matrix + 1 < Matrices::kN ? Step{s.row, s.matrix + 1, 0} : Step{s.row + row_step, 0, 0};
  };
  Step ahead = after({row, 0, 0});
  typename Format::Raw raw, next;
  if (row < matrices.n_rows) raw = load({row, 0, 0});
  if (ahead.row < matrices.n_rows) next = load(ahead);
  wait_for_previous();
  LaneX<Format, kPlanes> share;
  const bool x_stays = kTokens == 1 && longest <= kStep;  // a row is one step: its activations are loaded once
  if (x_stays) share.load(x, int64_t{x_row} * n_blocks + block_at(0), part);
  for (; row < matrices.n_rows; row += row_step) {
#pragma unroll 1
    for (int matrix = 0; matrix < Matrices::kN; ++matrix) {
      float c[kTokens] = {};
#pragma unroll 1
      for (int i = 0; i < longest; i += kStep) {
        const int at = block_at(i);
        const auto w = Format::unpack(raw, part);
        raw = next;
        ahead = after(ahead);
        if (ahead.row < matrices.n_rows) next = load(ahead);
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const int64_t x_at = int64_t{x_row + min(t, n_tokens - 1)} * n_blocks + at;
          if (!x_stays) share.load(x, x_at, part);
          const float term = term_of<Format, kPlanes>(w, share), d = share.d;
          if constexpr (kStep == 1) {
            const float next = num::fma(d, term, c[t]);
            c[t] = begin + i < end ? next : c[t];
          } else {
#pragma unroll
            for (int s = 0; s < 4; ++s) {  // the chain goes through the four lanes' blocks
              const float next = num::fma(__shfl_sync(kWholeWarp, d, s, 4), __shfl_sync(kWholeWarp, term, s, 4), c[t]);
              c[t] = begin + i + s < end ? next : c[t];
            }
          }
        }
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        float y = c[t];
#pragma unroll
        for (int width = 4; width <= 16; width *= 2)
          y = y + __shfl_xor_sync(kWholeWarp, y, width);  // the tree over the chunks
        if (t < n_tokens) take(matrix, t, row, y);
      }
    }
  }
}

// A row of a few superblocks, as an expert's last product has them, by four lanes, so that a warp has eight at a time
// and no lane is without a block. A chunk has one block at most: each is a chain of its own, and the tree over the
// chunks needs no other lane.
template <class Format>
struct ShortRow {
  static constexpr int kAhead = 3;
  const Parts& w;
  const int n_blocks;
  uint32_t first = 0;  // block; matrices of such rows have fewer than 2^32
  typename Format::Raw raw[kAhead];

  __device__ ShortRow(const Parts& parts, int n) : w(parts), n_blocks(n) {}
  __device__ typename Format::Raw load(int b) const {
    return Format::load(w, first + static_cast<uint32_t>(b), threadIdx.x % 4);
  }
  // Asks for the first blocks of a row; where it has fewer, for its last again.
  __device__ void begin(int row) {
    first = static_cast<uint32_t>(row) * static_cast<uint32_t>(n_blocks);
#pragma unroll
    for (int b = 0; b < kAhead; ++b) raw[b] = load(min(b, n_blocks - 1));
  }
  // The row that was begun times row x_row of the activations. All lanes of the warp call it.
  template <int kPlanes>
  __device__ float multiply(const quant::Activations& x, int x_row) {
    float c[8] = {};
#pragma unroll 1
    for (int b = 0; b < n_blocks; ++b) {
      const auto block = Format::unpack(raw[0], threadIdx.x % 4);
#pragma unroll
      for (int i = 0; i + 1 < kAhead; ++i) raw[i] = raw[i + 1];
      if (b + kAhead < n_blocks) raw[kAhead - 1] = load(b + kAhead);
      LaneX<Format, kPlanes> share;
      share.load(x, x_row * n_blocks + b, threadIdx.x % 4);
      const float sum = num::fma(share.d, term_of<Format, kPlanes>(block, share), 0.0f);
      const int chunk = (8 * (b + 1) - 1) / n_blocks;  // the one that ends behind block b
#pragma unroll
      for (int i = 0; i < 8; ++i) c[i] = i == chunk ? sum : c[i];
    }
    return ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
  }
};

using GemvFormats32 = FormatList<GemvQ4_0, GemvQ4_1, GemvQ8_0>;
using GemvFormats256 = FormatList<GemvQ4_K, GemvQ5_K, GemvQ6_K>;

}  // namespace assay::backend::cuda
