// Prefill, blocks of 32: the integer of a block is one product on the tensor cores and one float term an output. It
// begins at a number whose bits are a float's, 1.5 * 2^23: the bits of the sum are then the float 1.5 * 2^23 + sum, and
// one exact subtraction converts it.
#include "backend/cuda/tiles/mma_formats.cuh"
#include "backend/cuda/tiles/mma_tile.cuh"

namespace assay::backend::cuda {
namespace {

constexpr int32_t kBiasBits = 0x4B400000;
constexpr float kBias = 0x1.8p23f;
constexpr int kStageBlocks = kStageWeights / 32;
static_assert(32 * 127 * 128 < 1 << 22, "the sums of a block stay within the bias's step of 1");

template <class Format, int kPlanes>
struct Layout {
  static constexpr int kStageBytes = kColumnsBytes + kTileRows * Format::kPitch;
  static constexpr int kRowFloats = (Format::kHasMin ? 2 : 1) * kTileRows,
                       kColumnFloats = kTileColumns / kPlanes + (Format::kHasMin ? kTileColumns : 0);
  static constexpr int kScalarFloats = kStageBlocks * (kRowFloats + kColumnFloats);  // of a stage
  static constexpr TileLayout kLayout = tile_layout_32(Format::kPitch, kPlanes, Format::kHasMin);
  static constexpr int kScalarBytes = kLayout.scalar_bytes, kStages = kLayout.stages();
  static constexpr size_t kBytes = kLayout.bytes();
  static_assert(kStageBytes == kLayout.stage_bytes &&
                kScalarFloats == tile_scalar_floats_32(kPlanes, Format::kHasMin) &&
                Format::kPitch == tile_pitch(Format::kDType) && kBytes <= 227 * 1024);
};

// Floats of a stage, fetched one ahead: by block of the stage, then by row, token or column.
template <class Format, int kPlanes>
struct Scalars {
  static constexpr int kEach = kStageBlocks * kTileRows / kMmaThreads;
  uint32_t w[kEach];  // as loaded
  float x_d[kEach];
  int16_t x_sum[kEach];

  __device__ void fetch(const MmaTasks& tasks, const MmaTask& task, const MmaPlace<kPlanes>& at, int stage) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int item = i * kMmaThreads + static_cast<int>(threadIdx.x), along = item / kStageBlocks;
      const int block = min(stage * kStageBlocks + item % kStageBlocks, tasks.n_blocks - 1);
      w[i] = Format::load_scales(task.w, int64_t{min(at.row_0 + along, task.n_rows - 1)} * tasks.n_blocks + block);
      const int64_t x_at =
          int64_t{min(at.token_0 + MmaPlace<kPlanes>::token_of(along), tasks.n_tokens - 1)} * tasks.n_blocks + block;
      x_d[i] = tasks.x.d[x_at];
      if constexpr (Format::kHasMin) {
        x_sum[i] = (MmaPlace<kPlanes>::plane_of(along) == 0 ? tasks.x.q_sums : tasks.x.l_sums)[x_at];
      }
    }
  }
  __device__ void put(float* scalars) const {
    constexpr int kTokens = MmaPlace<kPlanes>::kTokens;
    float* rows_m = scalars + kStageBlocks * kTileRows;
    float* tokens = scalars + kStageBlocks * Layout<Format, kPlanes>::kRowFloats;
    float* columns = tokens + kStageBlocks * kTokens;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int item = i * kMmaThreads + static_cast<int>(threadIdx.x), along = item / kStageBlocks,
                block = item % kStageBlocks;
      const quant::BlockScales s = Format::block_scales(w[i]);
      scalars[block * kTileRows + along] = s.d;
      if (MmaPlace<kPlanes>::plane_of(along) == 0)
        tokens[block * kTokens + MmaPlace<kPlanes>::token_of(along)] = x_d[i];
      if constexpr (Format::kHasMin) {
        rows_m[block * kTileRows + along] = s.m;
        columns[block * kTileColumns + along] = static_cast<float>(x_sum[i]);
      }
    }
  }
};

template <class Format, int kPlanes>
struct Kernel32 {
  using L = Layout<Format, kPlanes>;
  using Place = MmaPlace<kPlanes>;
  static constexpr size_t kBytes = L::kBytes;
  using Sums = MmaSums<kPlanes>;
  static constexpr int kN = Sums::kN;

  const MmaTasks& tasks;
  const MmaTask& task;
  const MmaPlace<kPlanes> at;
  float4* waiting;
  float* scalars;
  uint32_t stages;
  const MmaColumns<kPlanes> columns;

  __device__ Kernel32(const MmaTasks& all, const MmaTask& one, const MmaPlace<kPlanes>& place, std::byte* memory)
      : tasks(all), task(one), at(place), waiting(reinterpret_cast<float4*>(memory)), columns(all, place) {
    scalars = reinterpret_cast<float*>(memory + kWaitingBytes<kPlanes>);
    stages = shared_address(memory + kWaitingBytes<kPlanes> + L::kScalarBytes);
  }

  __device__ void copy_stage(int i, int n_stages) const {
    if (i < n_stages) {
      const uint32_t stage = stages + static_cast<uint32_t>(i % L::kStages * L::kStageBytes);
      columns.copy(stage, tasks.x, i);
#pragma unroll
      for (int j = 0; j < kTileRows * Format::kPieces / kMmaThreads; ++j) {
        const int item = j * kMmaThreads + static_cast<int>(threadIdx.x), row = item / Format::kPieces,
                  piece = item % Format::kPieces;
        const int64_t blocks = int64_t{min(at.row_0 + row, task.n_rows - 1)} * tasks.n_blocks;
        const int block = i * kStageBlocks + 16 * piece / Format::kBlockBytes;
        const bool inside = block < tasks.n_blocks;
        const int64_t byte = (blocks + i * kStageBlocks) * Format::kBlockBytes + 16 * piece;
        copy_16(stage + kColumnsBytes + row * Format::kPitch + 16 * piece, task.w.base[1] + (inside ? byte : 0),
                inside);
      }
    }
    end_copies();
  }

  // Block i of a stage: its products and its terms.
  __device__ void add_block(uint32_t stage, const float* of_stage, int i, Sums& sums) const {
    constexpr int kTokens = MmaPlace<kPlanes>::kTokens;
    const int lane = at.lane;
    const float* rows_d = of_stage + i * kTileRows;
    const float* rows_m = of_stage + (kStageBlocks + i) * kTileRows;
    const float* tokens = of_stage + kStageBlocks * L::kRowFloats + i * kTokens;
    const float* columns = of_stage + kStageBlocks * (L::kRowFloats + kTokens) + i * kTileColumns;
    const uint32_t own = stage + kColumnsBytes + (at.warp_row + lane % 16) * Format::kPitch + i * Format::kBlockBytes +
                         (Format::kBlockBytes == 32 ? lane / 16 * 16 : 0);
    uint32_t a[2][4];
    float d[2][2], m_d[2][2] = {};
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      Format::fragment(own + 16 * m * Format::kPitch, a[m]);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int row = at.warp_row + 16 * m + 8 * side + lane / 4;
        d[m][side] = rows_d[row];
        if constexpr (Format::kHasMin) m_d[m][side] = rows_m[row];
      }
    }
#pragma unroll
    for (int pair = 0; pair < kN / 2; ++pair) {
      uint32_t b[kPlanes][4];
#pragma unroll
      for (int plane = 0; plane < kPlanes; ++plane)
        load_columns(stage, lane, at.warp_column + 32 * plane + 16 * pair, i, b[plane]);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int n = 2 * pair + side, column = 8 * n + 2 * (lane % 4);
        const float2 x_d = *reinterpret_cast<const float2*>(tokens + at.warp_column / kPlanes + column);
        float2 g = {0.0f, 0.0f};
        if constexpr (Format::kHasMin) {
          g = *reinterpret_cast<const float2*>(columns + at.warp_column + column);
          if constexpr (kPlanes == 2) {
            const float2 low = *reinterpret_cast<const float2*>(columns + at.warp_column + 32 + column);
            g = {num::fma(0x1p-7f, low.x, g.x), num::fma(0x1p-7f, low.y, g.y)};
          }
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          int32_t sum[kPlanes][4];
#pragma unroll
          for (int plane = 0; plane < kPlanes; ++plane)
            multiply_32(a[m], b[plane][2 * side], b[plane][2 * side + 1], kBiasBits, sum[plane]);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float f = __int_as_float(sum[0][e]) - kBias;
            if constexpr (kPlanes == 2) f = num::fma(0x1p-7f, __int_as_float(sum[kPlanes - 1][e]) - kBias, f);
            const float term =
                quant::block_term(Format::kHasMin, {d[m][e / 2], m_d[m][e / 2]}, f, e % 2 == 0 ? g.x : g.y);
            sums.c[m][n][e] = num::fma(e % 2 == 0 ? x_d.x : x_d.y, term, sums.c[m][n][e]);
          }
        }
      }
    }
  }

  __device__ void run() const {
    const int n_stages = (tasks.n_blocks + kStageBlocks - 1) / kStageBlocks;
    Scalars<Format, kPlanes> next;
#pragma unroll
    for (int i = 0; i < L::kStages - 1; ++i) copy_stage(i, n_stages);
    next.fetch(tasks, task, at, 0);
    next.put(scalars);
    next.fetch(tasks, task, at, 1);
    Sums sums;
    sums.clear();
    int chunk = 0;
    for (int i = 0; i < n_stages; ++i) {
      wait_copies<L::kStages - 2>();
      __syncthreads();
      copy_stage(i + L::kStages - 1, n_stages);
      next.put(scalars + (i + 1) % 2 * L::kScalarFloats);
      next.fetch(tasks, task, at, i + 2);
#pragma unroll 1
      for (int j = 0; j < min(kStageBlocks, tasks.n_blocks - i * kStageBlocks); ++j) {
        const int block = i * kStageBlocks + j;
        for (; quant::chunk_begin(chunk + 1, tasks.n_blocks) <= block; ++chunk)
          sums.end_chunk(chunk, waiting, task, at, tasks.n_tokens);
        add_block(stages + static_cast<uint32_t>(i % L::kStages * L::kStageBytes), scalars + i % 2 * L::kScalarFloats,
                  j, sums);
      }
    }
    for (; chunk < 8; ++chunk) sums.end_chunk(chunk, waiting, task, at, tasks.n_tokens);
  }
};

}  // namespace

void linear_mma_32(tensor::DType dtype, MmaTasks& tasks, const Queue& queue) {
  if (dtype == tensor::DType::Q4_0) launch_format<Kernel32, MmaQ4_0>(tasks, queue);
  if (dtype == tensor::DType::Q4_1) launch_format<Kernel32, MmaQ4_1>(tasks, queue);
  if (dtype == tensor::DType::Q8_0) launch_format<Kernel32, MmaQ8_0>(tasks, queue);
}

void linear_mma(std::span<const LinearTask> linears, const quant::Activations& x, int64_t n_tokens,
                const Queue& queue) {
  MmaTasks tasks = mma_tasks(linears, x, n_tokens);
  const tensor::DType dtype = linears.front().w->dtype;
  x.kind == quant::Activation::a256 ? linear_mma_256(dtype, tasks, queue) : linear_mma_32(dtype, tasks, queue);
}

void linear_wgmma(std::span<const LinearTask> linears, int columns, const quant::Activations& x, int64_t n_tokens,
                  const Hopper& hopper, const Queue& queue) {
  MmaTasks tasks = mma_tasks(linears, x, n_tokens);
  x.kind == quant::Activation::a256 ? linear_wgmma_256(linears, columns, tasks, hopper, queue)
                                    : linear_wgmma_32(linears.front().w->dtype, tasks, hopper, queue);
}

}  // namespace assay::backend::cuda
