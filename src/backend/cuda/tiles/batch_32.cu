// Products of the formats with blocks of 32 with several tokens on Hopper (sm_90a), by the tiles of batch_tile.cuh.
// Four blocks of a row are a line of 128 weights: of the activations in shared memory, of the weights a stage of the
// warp's ring. A block is one int8 product on the tensor cores and one float term an output. The integer begins at a
// number whose bits are a float's, 1.5 * 2^23: the bits of the sum are then the float 1.5 * 2^23 + sum, and one exact
// subtraction converts it.
#include "backend/cuda/tiles/batch_tile.cuh"
#include "num/lanes.h"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

constexpr int32_t kBiasBits = 0x4B400000;
constexpr float kBias = 0x1.8p23f;
constexpr int kLine = BatchPlaces32::kLine;
static_assert(32 * 127 * 128 < 1 << 22, "the sums of a block stay within the bias's step of 1");

__device__ uint32_t half_word_at(uint32_t shared) {
  uint16_t w;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(w) : "r"(shared));
  return w;
}

// What is common: where scales lie. A row's scales of a line are copied by whole words of 4 bytes, so those of 2 bytes
// may begin in the middle of one.
template <int kBytes, int kOfScale>
struct Batch32 {
  static constexpr int kBlockBytes = kBytes, kScaleBytes = kOfScale, kLineBytes = kLine * kBytes;
  static constexpr int kScaleWords = kOfScale == 2 ? 3 : 4, kRowBytes = kLineBytes + 16;
  static constexpr bool kHasMin = kOfScale == 4;
  // `odd`: whether the line's first scale begins in the middle of a word.
  __device__ static quant::BlockScales scales(uint32_t rows_scales, uint32_t row, int block, uint32_t odd) {
    const uint32_t at = rows_scales + 16 * row;
    if constexpr (kHasMin) return scales_of_pair(word_at(at + 4 * static_cast<uint32_t>(block)));
    return scales_of_one(half_word_at(at + 2 * (static_cast<uint32_t>(block) + odd)));
  }
};

struct BatchQ8_0 : Batch32<32, 2> {
  // A lane takes 8 neighbouring weights of a row, and of a column.
  __device__ static void fragment(uint32_t stage, const BatchLane& lane, int first_row, int block, uint32_t (&a)[4]) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const uint2 w = pair_at(stage + static_cast<uint32_t>((first_row + 8 * side) * kLineBytes) +
                              (lane.pair ^ static_cast<uint32_t>(32 * block)));
      a[side] = w.x, a[2 + side] = w.y;
    }
  }
  __device__ static void columns_at(uint32_t line, const BatchLane& lane, int block, uint32_t (&b)[2]) {
    const uint2 w = pair_at(line + (lane.pair ^ static_cast<uint32_t>(32 * block)));
    b[0] = w.x, b[1] = w.y;
  }
};

// Byte i of a block holds weights i and i + 16.
template <bool kMin>
struct BatchQ4 : Batch32<16, kMin ? 4 : 2> {
  using Batch32<16, kMin ? 4 : 2>::kLineBytes;
  __device__ static void fragment(uint32_t stage, const BatchLane& lane, int first_row, int block, uint32_t (&a)[4]) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const uint32_t row = lane.row + static_cast<uint32_t>(first_row + 8 * side),
                     piece = static_cast<uint32_t>(block) ^ (lane.row >> 1 & 3);
      const uint32_t w = word_at(stage + row * kLineBytes + 16 * piece + 4 * lane.place), low = w & 0x0F0F0F0Fu,
                     high = (w >> 4) & 0x0F0F0F0Fu;
      a[side] = kMin ? low : less_offset(low, 0x78787878u);
      a[2 + side] = kMin ? high : less_offset(high, 0x78787878u);
    }
  }
  __device__ static void columns_at(uint32_t line, const BatchLane& lane, int block, uint32_t (&b)[2]) {
    const uint32_t at = lane.word ^ static_cast<uint32_t>(32 * block);
    b[0] = word_at(line + at), b[1] = word_at(line + (at ^ 16));
  }
};
using BatchQ4_0 = BatchQ4<false>;
using BatchQ4_1 = BatchQ4<true>;

// The formats as BatchTask counts them.
enum : int32_t { kQ4_0, kQ4_1, kQ8_0 };
int32_t number_of(tensor::DType dtype) {
  return dtype == tensor::DType::Q4_0 ? kQ4_0 : dtype == tensor::DType::Q4_1 ? kQ4_1 : kQ8_0;
}

template <class S>
struct Kernel32 : BatchTile<S> {
  using Base = BatchTile<S>;
  using Base::base, Base::begin, Base::chain, Base::kM, Base::kPlanes, Base::kT, Base::lane, Base::n_own, Base::rank,
      Base::tasks, Base::warp;
  using Tile = typename Base::Tile;
  static constexpr bool kUnrolls = S::kN <= 4;  // few columns: the latencies of four blocks overlap
  const int n_lines;
  const uint32_t rings;  // the warp's
  float* const scales;   // of activations
  float* const minima;   // what the formats' minima are multiplied with: sums of activations

  // Shared memory: sums that wait for their neighbours in the tree, activations, their scales, their sums, the rings.
  using Places = BatchPlaces32;
  __host__ __device__ static constexpr int lines_of(int n_blocks) { return Places::lines_of(n_blocks); }
  __host__ __device__ static constexpr int columns_at() { return S::kSumsBytes; }
  __host__ __device__ static constexpr int scales_at(int n_blocks) { return Places(S::form(), n_blocks, false).scales; }
  __host__ __device__ static constexpr int minima_at(int n_blocks) { return Places(S::form(), n_blocks, false).minima; }
  __host__ __device__ static constexpr int rings_at(int n_blocks, bool has_min) {
    return Places(S::form(), n_blocks, has_min).rings;
  }
  static int bytes(const BatchTasks& t) {
    return rings_at(t.n_blocks_most, t.has_min) + kBatchWarps * S::kStages * t.stage_bytes;
  }
  static int row_bytes(int format) {
    return format == kQ8_0 ? BatchQ8_0::kRowBytes : format == kQ4_1 ? BatchQ4_1::kRowBytes : BatchQ4_0::kRowBytes;
  }

  __device__ Kernel32(const BatchTasks& all, std::byte* shared)
      : Base(all, shared), n_lines(lines_of(n_own)),
        rings(base +
              static_cast<uint32_t>(rings_at(all.n_blocks_most, all.has_min) + warp * S::kStages * all.stage_bytes)),
        scales(reinterpret_cast<float*>(shared + scales_at(all.n_blocks_most))),
        minima(reinterpret_cast<float*>(shared + minima_at(all.n_blocks_most))) {}

  // What the warp copies next: line `line` of its own, of its tile in round `round`; the lane's piece of the weights
  // and the lane's row of the scales.
  struct Cursor {
    int round, line, format;
    const uint8_t *weights, *row_scales;
  };
  template <class F>
  __device__ void begin_format(Cursor& at, const Tile& tile) const {
    constexpr int kPieces = F::kLineBytes / 16;
    static_assert(S::kRows == 32, "a lane copies the scales of a row");
    const int t = static_cast<int>(threadIdx.x) % 32;
    const Parts& parts = tile.task->w;
    at.weights = parts.base[1] + (int64_t{tile.row + t / kPieces} * tasks.n_blocks + begin) * F::kBlockBytes +
                 16 * (t % kPieces);
    at.row_scales = parts.base[0] + ((int64_t{tile.row + t} * tasks.n_blocks + begin) * F::kScaleBytes & ~int64_t{3});
  }
  template <class F>
  __device__ void copy_format(Cursor& at, uint32_t to) const {
    const int t = static_cast<int>(threadIdx.x) % 32,
              block = kLine * at.line + t % (F::kLineBytes / 16) * 16 / F::kBlockBytes;
    copy_rows<S::kRows, F::kLineBytes>(at.weights, to, static_cast<uint32_t>(tasks.n_blocks * F::kBlockBytes),
                                       block < n_own);
    const uint32_t row = to + static_cast<uint32_t>(S::kRows * F::kLineBytes + 16 * t);
#pragma unroll
    for (uint32_t word = 0; word < F::kScaleWords; ++word) copy_4(row + 4 * word, at.row_scales + 4 * word);
    at.weights += F::kLineBytes, at.row_scales += kLine * F::kScaleBytes;
  }
  __device__ void begin_tile(Cursor& at, int round) const {
    at.round = round, at.line = 0;
    if (round >= tasks.n_rounds) return;
    const Tile tile = this->tile_at(round * kBatchWarps + warp);
    at.format = tile.format;
    if (at.format == kQ4_0) begin_format<BatchQ4_0>(at, tile);
    if (at.format == kQ4_1) begin_format<BatchQ4_1>(at, tile);
    if (at.format == kQ8_0) begin_format<BatchQ8_0>(at, tile);
  }
  __device__ void copy_next(Cursor& at, int stage) const {
    if (at.round < tasks.n_rounds && n_own > 0) {
      const uint32_t to = rings + static_cast<uint32_t>(stage * tasks.stage_bytes);
      if (at.format == kQ4_0) copy_format<BatchQ4_0>(at, to);
      if (at.format == kQ4_1) copy_format<BatchQ4_1>(at, to);
      if (at.format == kQ8_0) copy_format<BatchQ8_0>(at, to);
      if (++at.line == n_lines) begin_tile(at, at.round + this->n_clusters);
    }
    end_copies();
  }

  // Its chunks of the activations, by the whole block of threads.
  __device__ void take_columns() const {
    const quant::Activations& x = tasks.x;
    for (int i = static_cast<int>(threadIdx.x); i < n_lines * S::kColumns * 8; i += kBatchThreads) {
      const int piece = i % 8, line = i / 8 % n_lines, column = i / 8 / n_lines;
      if (kLine * line + piece / 2 >= n_own) continue;
      const int8_t* from = (column < S::kTokens ? x.q : x.l) +
                           (int64_t{this->token_of(column)} * tasks.n_blocks + begin) * 32 + 128 * line + 16 * piece;
      const uint32_t exchanged = static_cast<uint32_t>(piece) ^ exchange_of(static_cast<uint32_t>(column));
      copy_16(base + static_cast<uint32_t>(columns_at() + (line * S::kColumns + column) * 128) + 16 * exchanged, from,
              true);
    }
    end_copies();
    for (int i = static_cast<int>(threadIdx.x); i < n_own * S::kTokens; i += kBatchThreads) {
      const int block = i % n_own, token = i / n_own;
      const int64_t from = int64_t{this->token_of(token)} * tasks.n_blocks + begin + block;
      scales[block * S::kTokens + token] = x.d[from];
      if (!tasks.has_min) continue;
      const int32_t sum = x.q_sums[from];
      minima[block * S::kTokens + token] =
          kPlanes == 2 ? quant::join_planes(sum, x.l_sums[from]) : static_cast<float>(sum);
    }
  }

  // Block `block` of line `line` of its own, whose weights lie at `stage`, into the chains.
  template <class F>
  __device__ void multiply(uint32_t stage, int line, int block, uint32_t odd) {
    uint32_t a[kM][4];
    quant::BlockScales d[kM][2];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      F::fragment(stage, lane, 16 * m, block, a[m]);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        d[m][side] = F::scales(stage + S::kRows * F::kLineBytes, lane.row + static_cast<uint32_t>(16 * m + 8 * side),
                               block, odd);
      }
    }
    const uint32_t columns = base + static_cast<uint32_t>(columns_at() + line * S::kColumns * 128);
    const int of_tokens = (kLine * line + block) * S::kTokens + 2 * static_cast<int>(lane.place);
#pragma unroll
    for (int t = 0; t < kT; ++t) {
      uint32_t b[kPlanes][2];
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane)
        F::columns_at(columns + static_cast<uint32_t>((plane * kT + t) * 8 * 128), lane, block, b[plane]);
      const float2 x_d = *reinterpret_cast<const float2*>(scales + of_tokens + 8 * t);
      float2 g = {0.0f, 0.0f};
      if constexpr (F::kHasMin) g = *reinterpret_cast<const float2*>(minima + of_tokens + 8 * t);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        int32_t sum[kPlanes][4];
#pragma unroll
        for (int plane = 0; plane < kPlanes; ++plane)
          multiply_32(a[m], b[plane][0], b[plane][1], kBiasBits, sum[plane]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float f = __int_as_float(sum[0][e]) - kBias;
          if constexpr (kPlanes == 2) f = num::fma(0x1p-7f, __int_as_float(sum[kPlanes - 1][e]) - kBias, f);
          const float term = quant::block_term(F::kHasMin, d[m][e / 2], f, e % 2 == 0 ? g.x : g.y);
          chain[m][t][e] = num::fma(e % 2 == 0 ? x_d.x : x_d.y, term, chain[m][t][e]);
        }
      }
    }
  }

  // Line `line` of its own; `chunk` is the one that its first block follows or belongs to.
  template <class F>
  __device__ void multiply_line(uint32_t stage, int line, int& chunk, const Tile& tile) {
    const uint32_t odd = static_cast<uint32_t>(begin + (tile.row + static_cast<int>(lane.row)) * tasks.n_blocks) & 1;
    const int first = kLine * line, end = min(first + kLine, n_own);
    for (; this->chunk_end(chunk) <= first; ++chunk) this->end_chunk(chunk);
    if (kUnrolls && end == first + kLine && this->chunk_end(chunk) >= end) {
#pragma unroll
      for (int block = 0; block < kLine; ++block) multiply<F>(stage, line, block, odd);
      return;
    }
#pragma unroll 1
    for (int i = first; i < end; ++i) {
      for (; this->chunk_end(chunk) <= i; ++chunk) this->end_chunk(chunk);
      multiply<F>(stage, line, i - first, odd);
    }
  }

  __device__ void run() {
    const int first_round = static_cast<int>(blockIdx.x) / S::kCluster;
    Cursor ahead;
    begin_tile(ahead, first_round);
#pragma unroll
    for (int i = 0; i < S::kStages - 1; ++i) copy_next(ahead, i);
    wait_for_previous();
    take_columns();
    wait_copies<0>();
    __syncthreads();
    int at = 0;  // stage
    for (int round = first_round; round < tasks.n_rounds; round += this->n_clusters) {
      const Tile tile = this->tile_at(round * kBatchWarps + warp);
      this->clear();
      int chunk = 0;
      for (int line = 0; line < n_lines; ++line) {
        wait_copies<S::kStages - 2>();
        __syncwarp();
        copy_next(ahead, at == 0 ? S::kStages - 1 : at - 1);
        const uint32_t stage = rings + static_cast<uint32_t>(at * tasks.stage_bytes);
        if (tile.format == kQ8_0) {
          multiply_line<BatchQ8_0>(stage, line, chunk, tile);
        } else if (tile.format == kQ4_0) {
          multiply_line<BatchQ4_0>(stage, line, chunk, tile);
        } else {
          multiply_line<BatchQ4_1>(stage, line, chunk, tile);
        }
        at = at + 1 == S::kStages ? 0 : at + 1;
      }
      for (; chunk < S::kChunks; ++chunk) this->end_chunk(chunk);
      this->end_round(round, tile);
    }
    wait_copies<0>();
  }
};

static_assert(BatchQ8_0::kRowBytes == batch_row_bytes(tensor::DType::Q8_0) &&
              BatchQ4_0::kRowBytes == batch_row_bytes(tensor::DType::Q4_0) &&
              BatchQ4_1::kRowBytes == batch_row_bytes(tensor::DType::Q4_1) &&
              BatchQ4_1::kHasMin == batch_has_min(tensor::DType::Q4_1));

}  // namespace

void linear_batch_32(std::span<const LinearTask> linears, const BatchForm& form, BatchTasks& tasks,
                     const Queue& queue) {
  for (size_t i = 0; i < linears.size(); ++i) {
    tasks.task[i].format = number_of(linears[i].w->dtype);
    tasks.has_min = tasks.has_min || tasks.task[i].format == kQ4_1;
  }
  launch_batch<Kernel32, 2>(form, tasks, queue);
}

}  // namespace assay::backend::cuda
