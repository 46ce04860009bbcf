// Products of superblock formats with several tokens on Hopper (sm_90a), by the tiles of batch_tile.cuh: each block of
// threads keeps its chunks of all tokens' activations in shared memory, the weights of a warp's rows come straight from
// memory through a ring of its own. Tokens (times planes) are columns of int8 products (mma.m16n8k32), sub-scales are
// multiplied in as integers, one float term a superblock.
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/tiles/batch_tile.cuh"
#include "backend/cuda/tiles/mma_tile.cuh"
#include "num/lanes.h"
#include "quant/steps.h"

namespace assay::backend::cuda {
namespace {

template <class S>
struct Kernel256 : BatchTile<S> {
  using Base = BatchTile<S>;
  using Base::base, Base::begin, Base::chain, Base::kM, Base::kN, Base::kPlanes, Base::kT, Base::lane, Base::n_clusters,
      Base::n_own, Base::rank, Base::tasks, Base::warp;
  using Tile = typename Base::Tile;
  const uint32_t rings;  // the warp's
  float* const scales;   // of activations
  std::byte* const group_sums;

  // Shared memory: sums that wait for their neighbours in the tree, activations, their sums of 16, their scales, the
  // rings.
  using Places = BatchPlaces256;
  __host__ __device__ static constexpr int columns_at() { return S::kSumsBytes; }
  __host__ __device__ static constexpr int group_sums_at(int n_blocks) {
    return Places(S::form(), n_blocks, false).group_sums;
  }
  __host__ __device__ static constexpr int scales_at(int n_blocks, bool has_min) {
    return Places(S::form(), n_blocks, has_min).scales;
  }
  __host__ __device__ static constexpr int rings_at(int n_blocks, bool has_min) {
    return Places(S::form(), n_blocks, has_min).rings;
  }
  static int bytes(const BatchTasks& t) {
    return rings_at(t.n_blocks_most, t.has_min) + kBatchWarps * S::kStages * t.stage_bytes;
  }
  static int row_bytes(int format) {
    return format == 4 ? BatchQ4_K::kRowBytes : format == 5 ? BatchQ5_K::kRowBytes : BatchQ6_K::kRowBytes;
  }

  __device__ Kernel256(const BatchTasks& all, std::byte* shared)
      : Base(all, shared), rings(base + static_cast<uint32_t>(rings_at(all.n_blocks_most, all.has_min) +
                                                              warp * S::kStages * all.stage_bytes)),
        scales(reinterpret_cast<float*>(shared + scales_at(all.n_blocks_most, all.has_min))),
        group_sums(shared + group_sums_at(all.n_blocks_most)) {}

  // What the warp copies next: superblock `block` of its own, of its tile in round `round`.
  struct Cursor {
    int round, block, format;
    BatchSource source;
  };
  __device__ void begin_tile(Cursor& at, int round) const {
    at.round = round, at.block = 0;
    if (round >= tasks.n_rounds) return;
    const Tile tile = this->tile_at(round * kBatchWarps + warp);
    at.format = tile.format;
    const int64_t block = int64_t{tile.row} * tasks.n_blocks + begin;
    if (at.format == 4) BatchQ4_K::begin<S::kRows>(at.source, tile.task->w, block, tasks.n_blocks);
    if (at.format == 5) BatchQ5_K::begin<S::kRows>(at.source, tile.task->w, block, tasks.n_blocks);
    if (at.format == 6) BatchQ6_K::begin<S::kRows>(at.source, tile.task->w, block, tasks.n_blocks);
  }
  __device__ void copy_next(Cursor& at, int stage) const {
    if (at.round < tasks.n_rounds && n_own > 0) {
      const uint32_t to = rings + static_cast<uint32_t>(stage * tasks.stage_bytes);
      if (at.format == 4) BatchQ4_K::copy<S::kRows>(at.source, to, tasks.n_blocks);
      if (at.format == 5) BatchQ5_K::copy<S::kRows>(at.source, to, tasks.n_blocks);
      if (at.format == 6) BatchQ6_K::copy<S::kRows>(at.source, to, tasks.n_blocks);
      if (++at.block == n_own) begin_tile(at, at.round + n_clusters);
    }
    end_copies();
  }

  // Its chunks of the activations, by the whole block of threads.
  __device__ void take_columns() const {
    const quant::Activations& x = tasks.x;
    for (int i = static_cast<int>(threadIdx.x); i < n_own * S::kColumns * 16; i += kBatchThreads) {
      const int piece = i % 16, block = i / 16 % n_own, column = i / 16 / n_own;
      const int8_t* from = (column < S::kTokens ? x.q : x.l) +
                           (int64_t{this->token_of(column)} * tasks.n_blocks + begin + block) * 256 + 16 * piece;
      const uint32_t exchanged = static_cast<uint32_t>(piece % 8) ^ exchange_of(static_cast<uint32_t>(column));
      copy_16(base + static_cast<uint32_t>(columns_at() + (block * S::kColumns + column) * 256 + piece / 8 * 128) +
                  16 * exchanged,
              from, true);
    }
    end_copies();
    for (int i = static_cast<int>(threadIdx.x); i < n_own * S::kTokens; i += kBatchThreads) {
      const int block = i % n_own, token = i / n_own;
      scales[block * S::kTokens + token] = x.d[int64_t{this->token_of(token)} * tasks.n_blocks + begin + block];
    }
    if (!tasks.has_min) return;
    auto* sums = reinterpret_cast<uint4*>(group_sums);
    for (int i = static_cast<int>(threadIdx.x); i < n_own * S::kColumns * 2; i += kBatchThreads) {
      const int half = i % 2, block = i / 2 % n_own, column = i / 2 / n_own;
      const int16_t* of_plane = column < S::kTokens ? x.q_sums : x.l_sums;
      const uint4 v = reinterpret_cast<const uint4*>(
          of_plane + (int64_t{this->token_of(column)} * tasks.n_blocks + begin + block) * 16)[half];
      sums[(block * S::kColumns + column) * 2 + half] = {halves_of(v.x), halves_of(v.y), halves_of(v.z),
                                                         halves_of(v.w)};
    }
  }

  // Superblock `block` of its own, whose weights lie at `from`, into the chains.
  template <class Format>
  __device__ void multiply(uint32_t from, int block, bool odd) {
    int32_t sum[kM][kN][4] = {};
    const uint32_t columns = base + static_cast<uint32_t>(columns_at() + block * S::kColumns * 256) +
                             lane.row * 128;  // a column has two lines
    typename Format::template Rows<kM> rows(from, lane);
#pragma unroll
    for (int group = 0; group < 4; ++group) {
      rows.load(group);
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const int sub = Format::sub(group, which);
        uint32_t a[kM][4];
#pragma unroll
        for (int m = 0; m < kM; ++m) rows.fragment(m, group, which, a[m]);
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          uint32_t b[2];
          Format::columns_at(columns + static_cast<uint32_t>(n * 8 * 256 + sub / 4 * 128), lane, sub, b);
#pragma unroll
          for (int m = 0; m < kM; ++m) rows.add_product(m, group, which, a[m], b, sum[m][n]);
        }
      }
    }
    add_terms<Format>(rows, block, odd, sum);
  }

  template <class Format, class Rows>
  __device__ void add_terms(const Rows& rows, int block, bool odd, const int32_t (&sum)[kM][kN][4]) {
    const float* of_tokens = scales + block * S::kTokens + 2 * lane.place;
    const auto* sums = reinterpret_cast<const uint32_t*>(group_sums) + block * S::kColumns * 8 + lane.row * 8;
    quant::BlockScales d[kM][2];
    uint32_t minima[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      if constexpr (Format::kHasMin) {
        rows.finish(m, d[m], minima[m]);
      } else {
        rows.finish(m, d[m], odd);
      }
    }
#pragma unroll
    for (int t = 0; t < kT; ++t) {
      const float2 x_d = *reinterpret_cast<const float2*>(of_tokens + 8 * t);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        float g[kPlanes][4] = {};
        if constexpr (Format::kHasMin) {
#pragma unroll
          for (int plane = 0; plane < kPlanes; ++plane) {
            const uint32_t* of_column = sums + (plane * kT + t) * 64 + lane.place;
            multiply_halves(minima[m], of_column[0], of_column[4], g[plane]);
          }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float f = static_cast<float>(sum[m][t][e]), of_minima = g[0][e];
          if constexpr (kPlanes == 2) {  // quant::join_planes
            f = num::fma(0x1p-7f, static_cast<float>(sum[m][kT + t][e]), f);
            of_minima = num::fma(0x1p-7f, g[kPlanes - 1][e], of_minima);
          }
          chain[m][t][e] = num::fma(e % 2 == 0 ? x_d.x : x_d.y,
                                    quant::block_term(Format::kHasMin, d[m][e / 2], f, of_minima), chain[m][t][e]);
        }
      }
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
    for (int round = first_round; round < tasks.n_rounds; round += n_clusters) {
      const Tile tile = this->tile_at(round * kBatchWarps + warp);
      this->clear();
      for (int chunk = 0, block = 0; chunk < S::kChunks; ++chunk) {
        for (const int end = this->chunk_end(chunk); block < end; ++block) {
          wait_copies<S::kStages - 2>();
          __syncwarp();
          copy_next(ahead, at == 0 ? S::kStages - 1 : at - 1);
          const uint32_t stage = rings + static_cast<uint32_t>(at * tasks.stage_bytes);
          if (tile.format == 6) {  // whether the superblock's number is odd in the lane's rows; 8 rows further lies an
                                   // even number of them
            multiply<BatchQ6_K>(stage, block,
                                ((begin + block + (tile.row + static_cast<int>(lane.row)) * tasks.n_blocks) & 1) != 0);
          } else if (tile.format == 5) {
            multiply<BatchQ5_K>(stage, block, false);
          } else {
            multiply<BatchQ4_K>(stage, block, false);
          }
          at = at + 1 == S::kStages ? 0 : at + 1;
        }
        this->end_chunk(chunk);
      }
      this->end_round(round, tile);
    }
    wait_copies<0>();
  }
};

int bits_of(tensor::DType dtype) { return dtype == tensor::DType::Q4_K ? 4 : dtype == tensor::DType::Q5_K ? 5 : 6; }

void linear_batch_256(std::span<const LinearTask> linears, const BatchForm& form, BatchTasks& tasks,
                      const Queue& queue) {
  for (size_t i = 0; i < linears.size(); ++i) {
    tasks.task[i].format = bits_of(linears[i].w->dtype);
    tasks.has_min = tasks.has_min || tasks.task[i].format != 6;
  }
  launch_batch<Kernel256, 3>(form, tasks, queue);
}
static_assert(BatchQ4_K::kRowBytes == batch_row_bytes(tensor::DType::Q4_K) &&
              BatchQ5_K::kRowBytes == batch_row_bytes(tensor::DType::Q5_K) &&
              BatchQ6_K::kRowBytes == batch_row_bytes(tensor::DType::Q6_K));

}  // namespace

void linear_batch(std::span<const LinearTask> linears, const BatchForm& form, const quant::Activations& x,
                  int64_t n_tokens, const Queue& queue) {
  BatchTasks tasks;
  tasks.n_blocks = static_cast<int32_t>(x.k / x.block());
  tasks.n_tokens = static_cast<int32_t>(n_tokens);
  tasks.x = x;
  for (const LinearTask& linear : linears) {
    const Matrix& w = *linear.w;
    tasks.task[tasks.n++] = {w.parts, 0, static_cast<int32_t>(w.rows), 0, linear.bias, linear.y};
  }
  x.kind == quant::Activation::a256 ? linear_batch_256(linears, form, tasks, queue)
                                    : linear_batch_32(linears, form, tasks, queue);
}

}  // namespace assay::backend::cuda
