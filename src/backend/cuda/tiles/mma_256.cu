// Prefill, superblocks: the integer of a superblock is gathered from the products of its sub-blocks with their
// sub-scales; one float term an output and superblock. Minima times sums of activations are a product of half-precision
// integers (at most 63 and 2,032, so exact).
#include "backend/cuda/tiles/mma_formats.cuh"
#include "backend/cuda/tiles/mma_tile.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int kSumsPitch = kTileSumsPitch;

template <class Format, int kPlanes>
struct Layout {
  static constexpr int kPitch = 16 * Format::kPieces, kRowsBytes = kTileRows * kPitch;
  static constexpr int kStageBytes = kColumnsBytes + kRowsBytes;
  static constexpr int kSumsBytes = Format::kHasMin ? kTileColumns * kSumsPitch : 0;
  static constexpr TileLayout kLayout = tile_layout_256(kPitch, kPlanes, Format::kHasMin);
  static constexpr int kStages = kLayout.stages();
  static constexpr size_t kBytes = kLayout.bytes();
  static_assert(kStageBytes == kLayout.stage_bytes && kPitch == tile_pitch(Format::kDType));
};

// Floats of the superblock at work, fetched one ahead.
template <class Format, int kPlanes>
struct Scalars {
  uint32_t w = 0;  // as loaded
  float x_d = 0;
  uint4 sums = {};

  __device__ void fetch(const MmaTasks& tasks, const typename Format::Source& source, const MmaPlace<kPlanes>& at,
                        int block) {
    const int t = static_cast<int>(threadIdx.x);
    if (t % 2 == 1) w = source.load_scales(block);
    if (t < MmaPlace<kPlanes>::kTokens)
      x_d = tasks.x.d[int64_t{min(at.token_0 + t, tasks.n_tokens - 1)} * tasks.n_blocks + block];
    if constexpr (Format::kHasMin) {
      const int column = t / 2, token = min(at.token_0 + MmaPlace<kPlanes>::token_of(column), tasks.n_tokens - 1);
      const int16_t* from = MmaPlace<kPlanes>::plane_of(column) == 0 ? tasks.x.q_sums : tasks.x.l_sums;
      sums = reinterpret_cast<const uint4*>(from + (int64_t{token} * tasks.n_blocks + block) * 16)[t % 2];
    }
  }
  __device__ static uint32_t halves_of(uint32_t pair) {
    const __half2 h = __halves2half2(__short2half_rn(static_cast<int16_t>(pair & 0xFFFFu)),
                                     __short2half_rn(static_cast<int16_t>(pair >> 16)));
    return *reinterpret_cast<const uint32_t*>(&h);
  }
  __device__ void put(float* row_d, float* row_m, float* token_d, std::byte* column_sums) const {
    const int t = static_cast<int>(threadIdx.x);
    if (t % 2 == 1) {
      const quant::BlockScales s = Format::block_scales(w);
      row_d[t / 2] = s.d, row_m[t / 2] = s.m;
    }
    if (t < MmaPlace<kPlanes>::kTokens) token_d[t] = x_d;
    if constexpr (Format::kHasMin) {
      *reinterpret_cast<uint4*>(column_sums + t / 2 * kSumsPitch + t % 2 * 16) = {halves_of(sums.x), halves_of(sums.y),
                                                                                  halves_of(sums.z), halves_of(sums.w)};
    }
  }
};

template <class Format, int kPlanes>
struct Kernel256 {
  using L = Layout<Format, kPlanes>;
  using Place = MmaPlace<kPlanes>;
  static constexpr size_t kBytes = L::kBytes;
  using Sums = MmaSums<kPlanes>;
  static constexpr int kN = Sums::kN;

  const MmaTasks& tasks;
  const MmaTask& task;
  const MmaPlace<kPlanes> at;
  float4* waiting;
  float *row_d, *row_m, *token_d;
  std::byte* column_sums;
  uint32_t stages;
  const typename Format::Source source;
  const MmaColumns<kPlanes> columns;

  __device__ Kernel256(const MmaTasks& all, const MmaTask& one, const MmaPlace<kPlanes>& place, std::byte* memory)
      : tasks(all), task(one), at(place), waiting(reinterpret_cast<float4*>(memory)),
        source(one.w, int64_t{min(place.row_0 + static_cast<int>(threadIdx.x) / 2, one.n_rows - 1)} * all.n_blocks,
               static_cast<int>(threadIdx.x) % 2),
        columns(all, place) {
    row_d = reinterpret_cast<float*>(memory + kWaitingBytes<kPlanes>);
    row_m = row_d + kTileRows;
    token_d = row_m + kTileRows;
    column_sums = reinterpret_cast<std::byte*>(token_d + kTileColumns);
    stages = shared_address(column_sums + L::kSumsBytes);
  }

  __device__ void copy_stage(int i) const {
    if (i < 2 * tasks.n_blocks) {
      const uint32_t stage = stages + static_cast<uint32_t>(i % L::kStages * L::kStageBytes);
      columns.copy(stage, tasks.x, i);
      source.copy(stage + kColumnsBytes + threadIdx.x / 2 * L::kPitch, i, static_cast<int>(threadIdx.x) % 2);
    }
    end_copies();
  }

  // Half a superblock: products with the sub-scales, into `sum`.
  __device__ void multiply(uint32_t stage, int half, int32_t (&sum)[2][8][4]) const {
    const int lane = at.lane;
    const uint32_t rows = stage + kColumnsBytes + at.warp_row * L::kPitch;
    const uint32_t own =
        rows + (lane % 16) * L::kPitch + lane / 16 * 16;  // the row and side that the lane names when loading
    typename Format::Scales scales[2][2];
    typename Format::Raw raw[2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int side = 0; side < 2; ++side)
        scales[m][side] = Format::scales(rows + (16 * m + 8 * side + lane / 4) * L::kPitch, half);
    }
#pragma unroll 2
    for (int i = 0; i < 4; ++i) {
      const int run = Format::run(i);
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        Format::load(own + 16 * m * L::kPitch, i, raw[m]);
        Format::unpack(raw[m], half, i, a[m]);
      }
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t b[4];
        load_columns(stage, lane, at.warp_column + 16 * pair, run, b);
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int m = 0; m < 2; ++m) add_product(a[m], b[2 * n], b[2 * n + 1], scales[m], run, sum[m][2 * pair + n]);
        }
      }
    }
  }
  __device__ static void add_product(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                     const typename Format::Scales (&scales)[2], int run, int32_t (&sum)[4]) {
    int32_t s[4];
    if constexpr (Format::kGroup == 32) {
      multiply_32(a, b0, b1, 0, s);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] += Format::scale(scales[e / 2], run, 0) * s[e];
    } else {
      multiply_16(a[0], a[1], b0, s);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] += Format::scale(scales[e / 2], run, 0) * s[e];
      multiply_16(a[2], a[3], b1, s);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] += Format::scale(scales[e / 2], run, 1) * s[e];
    }
  }

  // The float term of the superblock whose second half lies in `stage`; the integers begin anew.
  __device__ void add_terms(uint32_t stage, int32_t (&sum)[2][8][4], Sums& sums) const {
    const int lane = at.lane;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      uint32_t minima[4] = {};
      float d[2], min_d[2];
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int row = at.warp_row + 16 * m + 8 * side + lane / 4;
        d[side] = row_d[row], min_d[side] = row_m[row];
        if constexpr (Format::kHasMin)
          Format::minima(stage + kColumnsBytes + row * L::kPitch, lane % 4, minima[side], minima[2 + side]);
      }
#pragma unroll
      for (int n = 0; n < kN; ++n) {
        float g[kPlanes][4] = {};
        if constexpr (Format::kHasMin) {
#pragma unroll
          for (int plane = 0; plane < kPlanes; ++plane) {
            const int column = at.warp_column + 32 * plane + 8 * n + lane / 4;
            const auto* of_column = reinterpret_cast<const uint32_t*>(column_sums + column * kSumsPitch) + lane % 4;
            multiply_halves(minima, of_column[0], of_column[4], g[plane]);
          }
        }
        const float2 x_d =
            *reinterpret_cast<const float2*>(token_d + at.warp_column / kPlanes + 8 * n + 2 * (lane % 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float f = static_cast<float>(sum[m][n][e]), of_minima = g[0][e];
          sum[m][n][e] = 0;
          if constexpr (kPlanes == 2) {
            f = num::fma(0x1p-7f, static_cast<float>(sum[m][kN + n][e]), f);
            of_minima = num::fma(0x1p-7f, g[kPlanes - 1][e], of_minima);
            sum[m][kN + n][e] = 0;
          }
          const float term = quant::block_term(Format::kHasMin, {d[e / 2], min_d[e / 2]}, f, of_minima);
          sums.c[m][n][e] = num::fma(e % 2 == 0 ? x_d.x : x_d.y, term, sums.c[m][n][e]);
        }
      }
    }
  }

  __device__ void run() const {
    Scalars<Format, kPlanes> next;
#pragma unroll
    for (int i = 0; i < L::kStages - 1; ++i) copy_stage(i);
    next.fetch(tasks, source, at, 0);
    Sums sums;
    sums.clear();
    int32_t sum[2][8][4] = {};
    int chunk = 0;
    for (int block = 0; block < tasks.n_blocks; ++block) {
      for (; quant::chunk_begin(chunk + 1, tasks.n_blocks) <= block; ++chunk)
        sums.end_chunk(chunk, waiting, task, at, tasks.n_tokens);
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        const int i = 2 * block + half;
        wait_copies<L::kStages - 2>();
        __syncthreads();
        copy_stage(i + L::kStages - 1);
        if (half == 0) {
          next.put(row_d, row_m, token_d, column_sums);
          if (block + 1 < tasks.n_blocks) next.fetch(tasks, source, at, block + 1);
        }
        multiply(stages + static_cast<uint32_t>(i % L::kStages * L::kStageBytes), half, sum);
      }
      add_terms(stages + static_cast<uint32_t>((2 * block + 1) % L::kStages * L::kStageBytes), sum, sums);
    }
    for (; chunk < 8; ++chunk) sums.end_chunk(chunk, waiting, task, at, tasks.n_tokens);
  }
};

}  // namespace

void linear_mma_256(tensor::DType dtype, MmaTasks& tasks, const Queue& queue) {
  if (dtype == tensor::DType::Q4_K) launch_format<Kernel256, MmaQ4_K>(tasks, queue);
  if (dtype == tensor::DType::Q5_K) launch_format<Kernel256, MmaQ5_K>(tasks, queue);
  if (dtype == tensor::DType::Q6_K) launch_format<Kernel256, MmaQ6_K>(tasks, queue);
}

}  // namespace assay::backend::cuda
