// Decode of one token: the products of its experts with what stands between and behind them, in two kernels instead of
// four (contracts: ops/linear/expert_linear.h, ops/rows/gate.h, ops/linear/expert_sum.h).
//
//   x (integers) ──> gate, up of each rank's expert ──> activation ──> [rank][width] floats        expert_token_gate
//   [rank][width] ──> integers ──> down of each rank's expert ──> sum over the ranks ──> y         expert_token_sum
#pragma once

#include <cstdint>

#include "backend/cuda/experts/expert_linear.h"
#include "backend/cuda/kernels/limits.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/rows/activation.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

// Two products by the same routes of the same row, of one format and shape; y [n_used][d_out] = activation(gate) * up.
// Their own y: null where nobody reads them.
struct ExpertGateTask {
  ExpertTask gate, up;
  ops::ActivationFunction activation = ops::ActivationFunction::silu;
  float* y = nullptr;
};
// x: of superblocks or of blocks of 32.
void expert_token_gate(const ExpertGateTask& task, const quant::Activations& x, const Queue& queue);

// down.x: floats, a row for each rank. down.y: null where nobody reads it. Its routes are settled
// (ExpertTask::routes_are_settled) if expert_token_gate is the kernel ahead. What it takes: find_expert_token_row()
// (kernels/expert_table.h).
struct ExpertSumTask {
  ExpertTask down;
  const float* weights = nullptr;  // of the ranks; null: a plain sum
  float* y = nullptr;              // [d_out]
};
void expert_token_sum(const ExpertSumTask& task, int planes, const Queue& queue);

}  // namespace assay::backend::cuda
