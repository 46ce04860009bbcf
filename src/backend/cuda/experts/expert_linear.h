// Products with the matrices of the experts that each token was routed to (contract: ops/linear/expert_linear.h). A
// pair is a token and a rank: pair p has token p / n_used, reads its expert from the routes on the device, and
// multiplies that expert's rows by its own row of activations. So a graph of kernels fits any routing.
//
//   routes  [token][weights of n_used ranks | experts of n_used ranks]   x  [token][d_in], or [token][rank][d_in]   y
//   [token][rank][d_out] w       all experts' rows one after the other; those of expert e begin at e * rows_per_expert
//   + first_row
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/runtime/queue.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

struct ExpertTask {
  const Matrix* w = nullptr;
  const float* bias = nullptr;    // by row of w, or null
  const float* routes = nullptr;  // null: rank i goes to expert i
  const float* x = nullptr;
  float* y = nullptr;
  int64_t n_pairs = 0, d_in = 0, d_out = 0, rows_per_expert = 0, first_row = 0;
  int32_t n_used = 0;
  bool is_wide = false;  // x has a row for each rank
  // Another product by the same routes ran before what made x, by expert_linear_gemv: they may be read before the
  // kernels ahead have ended.
  bool routes_are_settled = false;
};

// Quantised weights; x as integers, n_pairs or n_pairs / n_used rows of d_in. By the code that knows every format, a
// thread a chunk of a row.
void expert_linear_any(const ExpertTask& task, const quant::Activations& x, const Queue& queue);
// The same for the formats whose blocks are cut into parts, four lanes a chunk or a row. Of two products by the same
// routes, with as many rows and columns, both in one kernel.
void expert_linear_gemv(std::span<const ExpertTask> products, const quant::Activations& x, const Queue& queue);
// Float weights at w, those of experts first_expert .. first_expert + n_experts - 1: pairs of other experts are left
// out.
void expert_linear_float(const ExpertTask& task, tensor::DType dtype, const void* w, int64_t first_expert,
                         int64_t n_experts, const Queue& queue);

}  // namespace assay::backend::cuda
