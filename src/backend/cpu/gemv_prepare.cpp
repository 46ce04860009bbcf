// Layout of activations for the matrix-vector kernels: copies only, and the floats G of the contract.
#include "backend/cpu/gemv_prepare.h"

#include <algorithm>
#include <cstring>

#include "num/lanes.h"

namespace assay::backend::cpu {
namespace {

constexpr int kLaneOfPlace[kLanes] = {0, 4, 1, 5, 2, 6, 3, 7};

size_t round_up(size_t bytes) noexcept { return (bytes + 63) / 64 * 64; }

// The block of a lane at a step, or -1.
int64_t block_at(const GemvChain& chain, int lane, int64_t step) noexcept {
  if (step >= chain.full_steps && chain.last_mask[lane] == 0) return -1;
  return chain.first[lane] + step;
}

void lay_column(const GemvChain& chain, const quant::Activations& x, const int8_t* plane, int64_t row, int64_t step, int8_t* out,
                const int16_t* plane_sums, int32_t* sums) noexcept {
  for (int place = 0; place < kLanes; ++place) {
    const int lane = kLaneOfPlace[place];
    int8_t* first_half = out + 128 * (place / 4) + 16 * (place % 4);
    const int64_t block = block_at(chain, lane, step);
    if (block < 0) {
      std::memset(first_half, 0, 16);
      std::memset(first_half + 64, 0, 16);
      sums[lane] = 0;
      continue;
    }
    std::memcpy(first_half, plane + row * x.k + 32 * block, 16);
    std::memcpy(first_half + 64, plane + row * x.k + 32 * block + 16, 16);
    sums[lane] = plane_sums[row * (x.k / 32) + block];
  }
}

}  // namespace

GemvChain gemv_chain(int64_t n_blocks) noexcept {
  GemvChain chain;
  chain.n_blocks = n_blocks;
  chain.full_steps = n_blocks / kLanes;
  chain.steps = (n_blocks + kLanes - 1) / kLanes;
  for (int lane = 0; lane < kLanes; ++lane) {
    chain.first[lane] = quant::chunk_begin(lane, n_blocks);
    const bool has_last = quant::chunk_begin(lane + 1, n_blocks) - chain.first[lane] == chain.steps;
    chain.last_mask[lane] = has_last ? -1 : 0;
    chain.last[lane] = std::min(chain.first[lane] + (has_last ? chain.steps - 1 : 0), n_blocks - 1);
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
  const size_t floats = round_up(steps * kGemvColumnsMax * kLanes * sizeof(float));
  return block == 32 ? steps * kGemvColumnsMax * 256 + 3 * floats : floats;
}

GemvOperand gemv_prepare(const LinearTask& task, int64_t token, int tokens, std::byte* scratch) noexcept {
  const quant::Activations& x = task.x;
  GemvOperand operand;
  operand.chain = gemv_chain(task.k / x.block());
  operand.planes = x.planes;
  operand.tokens = tokens;
  const int64_t steps = operand.chain.steps;
  const int columns = tokens * x.planes;
  const size_t floats = round_up(static_cast<size_t>(steps) * kGemvColumnsMax * kLanes * sizeof(float));
  float* d = reinterpret_cast<float*>(scratch);
  operand.d = d;
  for (int64_t step = 0; step < steps; ++step) {
    for (int t = 0; t < tokens; ++t) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const int64_t block = block_at(operand.chain, lane, step);
        d[(step * tokens + t) * kLanes + lane] = block < 0 ? 0.0f : x.d[(token + t) * operand.chain.n_blocks + block];
      }
    }
  }
  if (x.block() != 32) return operand;

  float* g = reinterpret_cast<float*>(scratch + floats);
  int32_t* sums = reinterpret_cast<int32_t*>(scratch + 2 * floats);
  int8_t* q = reinterpret_cast<int8_t*>(scratch + 3 * floats);
  operand.g = g;
  operand.sums = sums;
  operand.q = q;
  for (int64_t step = 0; step < steps; ++step) {
    for (int t = 0; t < tokens; ++t) {
      const int64_t column = step * columns + t * x.planes;
      lay_column(operand.chain, x, x.q, token + t, step, q + column * 256, x.q_sums, sums + column * kLanes);
      if (x.planes == 2) {
        lay_column(operand.chain, x, x.l, token + t, step, q + (column + 1) * 256, x.l_sums, sums + (column + 1) * kLanes);
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        const float first = static_cast<float>(sums[column * kLanes + lane]);
        const float refined = x.planes == 2 ? static_cast<float>(sums[(column + 1) * kLanes + lane]) : 0.0f;
        g[(step * tokens + t) * kLanes + lane] = x.planes == 2 ? num::fma(0x1p-7f, refined, first) : first;
      }
    }
  }
  return operand;
}

}  // namespace assay::backend::cpu
