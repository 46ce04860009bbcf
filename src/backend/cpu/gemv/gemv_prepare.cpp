// Layout of activations for the matrix-vector kernels: copies only, and the floats G of the contract.
#include "backend/cpu/gemv/gemv_prepare.h"

#include <algorithm>
#include <cstring>

#include "base/round_up.h"

namespace assay::backend::cpu {
namespace {

constexpr int kLaneOfPlace[kLanes] = {0, 4, 1, 5, 2, 6, 3, 7};

// The blocks of a step by lanes; -1: none.
void blocks_of_lanes(const GemvChain& chain, int64_t step, int64_t* blocks) noexcept {
  for (int lane = 0; lane < kLanes; ++lane)
    blocks[lane] = step >= chain.full_steps && chain.last_mask[lane] == 0 ? -1 : chain.first[lane] + step;
}

// The same by places.
void blocks_of_places(const GemvChain& chain, int64_t step, int64_t* blocks) noexcept {
  blocks_of_lanes(chain, step, blocks);
  if (step < chain.full_steps) return;
  const int64_t in_rows = chain.rows_of_last_step * (chain.n_blocks - kLanes * chain.full_steps);
  for (int place = 0; place < kLanes; ++place) blocks[place] = place < in_rows ? chain.last[place] : -1;
}

// One step of one column. plane and plane_sums: of its row.
void lay_column(const int64_t* blocks, const int8_t* plane, const int16_t* plane_sums, int8_t* out,
                int32_t* sums) noexcept {
  for (int place = 0; place < kLanes; ++place) {
    const int lane = kLaneOfPlace[place];
    int8_t* first_half = out + 128 * (place / 4) + 16 * (place % 4);
    const int64_t block = blocks[lane];
    if (block < 0) {
      std::memset(first_half, 0, 16);
      std::memset(first_half + 64, 0, 16);
      sums[lane] = 0;
    } else {
      std::memcpy(first_half, plane + 32 * block, 16);
      std::memcpy(first_half + 64, plane + 32 * block + 16, 16);
      sums[lane] = plane_sums[block];
    }
  }
}

// One step of one token: both planes as one number.
static_assert(128 * 127 + 64 <= 32767);
void lay_joined(const int64_t* blocks, const int8_t* first, const int8_t* second, int16_t* out) noexcept {
  for (int lane = 0; lane < kLanes; ++lane, out += 32) {
    if (blocks[lane] < 0) {
      std::fill_n(out, 32, int16_t{0});
      continue;
    }
    const int8_t *q = first + 32 * blocks[lane], *l = second + 32 * blocks[lane];
    for (int i = 0; i < 32; ++i) out[i] = static_cast<int16_t>(128 * q[i] + l[i]);
  }
}

// One of a step's columns of superblocks, so many lanes a group. plane and plane_sums: of its row.
struct StepColumn {
  int column, n_columns, group_lanes;
};
void lay_superblocks(const int64_t* blocks, const int8_t* plane, const int16_t* plane_sums, const StepColumn& at,
                     int8_t* out, std::byte* words) noexcept {
  const int width = 16 * at.group_lanes;  // bytes of a group's lanes
  for (int place = 0; place < kLanes; ++place) {
    const int64_t block = blocks[kLaneOfPlace[place]];
    const int group = place / at.group_lanes, in_group = 16 * (place % at.group_lanes);
    int8_t* pieces = out + (16 * group * at.n_columns + at.column) * width + in_group;
    int16_t of_lane[3][8] = {};
    for (int i = 0; i < 16; ++i, pieces += at.n_columns * width) {
      if (block < 0) {
        std::memset(pieces, 0, 16);
      } else {
        std::memcpy(pieces, plane + 256 * block + 16 * i, 16);
      }
    }
    for (int i = 0; i < 8 && block >= 0; ++i) {
      const int16_t even = plane_sums[16 * block + 2 * i], odd = plane_sums[16 * block + 2 * i + 1];
      of_lane[0][i] = even;
      of_lane[1][i] = odd;
      of_lane[2][i] = static_cast<int16_t>(even + odd);
    }
    for (int kind = 0; kind < 3; ++kind)
      std::memcpy(words + (3 * (group * at.n_columns + at.column) + kind) * width + in_group, of_lane[kind], 16);
  }
}

// The sums of both planes as one integer, in place, and G of the contract. A sum of 32 is at most 4064, so that integer
// is exact below 2^24 and this is fma(1/128, float(l), float(q)).
static_assert(128 * 32 * 127 + 32 * 64 < 1 << 24);
void join_sums(const int32_t* second, int32_t* sums, float* g) noexcept {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (second != nullptr) sums[lane] = 128 * sums[lane] + second[lane];
    g[lane] = static_cast<float>(sums[lane]) * (second != nullptr ? 0x1p-7f : 1.0f);
  }
}

}  // namespace

GemvChain gemv_chain(int64_t n_blocks) noexcept {
  GemvChain chain;
  chain.n_blocks = n_blocks;
  chain.full_steps = n_blocks / kLanes;
  chain.steps = (n_blocks + kLanes - 1) / kLanes;
  const auto n_last = static_cast<int>(n_blocks - kLanes * chain.full_steps);
  if (n_last > 0) chain.rows_of_last_step = std::min(kRowsOfLastStepMax, kLanes / n_last);
  for (int place = 0; place < kLanes; ++place) {
    chain.last[place] = 0;
    chain.last_row[place] = n_last > 0 ? std::min(place / n_last, chain.rows_of_last_step - 1) : 0;
  }
  int before = 0;  // lanes below with a block at the last step
  for (int lane = 0; lane < kLanes; ++lane) {
    chain.first[lane] = quant::chunk_begin(lane, n_blocks);
    const bool has_last = n_last > 0 && quant::chunk_begin(lane + 1, n_blocks) - chain.first[lane] == chain.steps;
    chain.last_mask[lane] = has_last ? -1 : 0;
    for (int row = 0; row < kRowsOfLastStepMax; ++row) {
      const int place = row * n_last + before;
      const bool is_place = has_last && row < chain.rows_of_last_step;
      chain.place[row][lane] = is_place ? place : 0;
      if (is_place) chain.last[place] = chain.first[lane] + chain.full_steps;
    }
    if (has_last) ++before;
  }
  return chain;
}

int gemv_tokens(const LinearTask& task, int64_t token) noexcept {
  const int64_t most = std::min<int64_t>(kGemvColumnsMax / task.x.planes, task.n_tokens - token);
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

size_t gemv_scratch_bytes(const LinearTask& task) noexcept {
  const int64_t block = task.x.block();
  const size_t steps = static_cast<size_t>((task.k / block + kLanes - 1) / kLanes);
  const size_t floats = base::round_up(steps * kGemvColumnsMax * kLanes * sizeof(float), 64);
  return block == 32 ? static_cast<size_t>(task.x.planes) * steps * kGemvColumnsMax * 256 + 3 * floats
                     : steps * kGemvColumnsMax * static_cast<size_t>(kStepElements + kStepSums) + floats;
}

GemvOperand gemv_prepare(const LinearTask& task, int64_t token, int tokens, const GemvLayout& layout,
                         std::byte* scratch) noexcept {
  const quant::Activations& x = task.x;
  const bool a32 = x.block() == 32, lanes = !a32 && layout.group_lanes > 0;
  GemvOperand operand;
  operand.chain = gemv_chain(task.k / x.block());
  operand.walk = layout.walk;
  operand.planes = x.planes;
  operand.tokens = tokens;
  const int64_t steps = operand.chain.steps;
  const size_t floats = base::round_up(static_cast<size_t>(steps) * kGemvColumnsMax * kLanes * sizeof(float), 64);
  float* d = reinterpret_cast<float*>(scratch);
  float* g = reinterpret_cast<float*>(scratch + floats);
  int32_t* sums = reinterpret_cast<int32_t*>(scratch + 2 * floats);
  std::byte* words = scratch + floats;
  int8_t* q = reinterpret_cast<int8_t*>(a32 ? scratch + 3 * floats : words + steps * tokens * x.planes * kStepSums);
  operand.d = d;
  operand.g = a32 ? g : nullptr;
  operand.sums = a32 ? sums : nullptr;
  operand.q = a32 || lanes ? q : nullptr;
  operand.words = lanes ? words : nullptr;
  int16_t* joined =
      a32 && x.planes == 2 && layout.joined ? reinterpret_cast<int16_t*>(q + steps * tokens * x.planes * 256) : nullptr;
  operand.joined = joined;
  for (int64_t step = 0; step < steps; ++step) {
    int64_t blocks[kLanes], of_lanes[kLanes];
    blocks_of_places(operand.chain, step, blocks);
    blocks_of_lanes(operand.chain, step, of_lanes);
    for (int64_t row = token; row < token + tokens; ++row, d += kLanes) {
      const float* of_row = x.d + row * operand.chain.n_blocks;
      for (int lane = 0; lane < kLanes; ++lane) d[lane] = of_lanes[lane] < 0 ? 0.0f : of_row[of_lanes[lane]];
      if (!a32) {
        for (int plane = 0; lanes && plane < x.planes; ++plane) {
          const StepColumn at = {static_cast<int>(row - token) * x.planes + plane, tokens * x.planes,
                                 layout.group_lanes};
          lay_superblocks(blocks, (plane == 0 ? x.q : x.l) + row * x.k,
                          (plane == 0 ? x.q_sums : x.l_sums) + row * x.k / 16, at, q, words);
        }
        continue;
      }
      lay_column(blocks, x.q + row * x.k, x.q_sums + row * operand.chain.n_blocks, q, sums);
      int32_t second[kLanes];
      if (x.planes == 2) lay_column(blocks, x.l + row * x.k, x.l_sums + row * operand.chain.n_blocks, q + 256, second);
      if (joined != nullptr) {
        lay_joined(blocks, x.q + row * x.k, x.l + row * x.k, joined);
        joined += 32 * kLanes;
      }
      join_sums(x.planes == 2 ? second : nullptr, sums, g);
      q += 256 * x.planes;
      sums += kLanes;
      g += kLanes;
    }
    if (lanes) q += tokens * x.planes * kStepElements, words += tokens * x.planes * kStepSums;
  }
  return operand;
}

}  // namespace assay::backend::cpu
