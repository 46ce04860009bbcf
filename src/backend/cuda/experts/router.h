// Decode: a router's product, the norm ahead of it and the routes that come of its logits, in one kernel (contracts:
// ops/rows/rms_norm.h, ops/linear/linear.h with float weights, ops/linear/route.h).
#pragma once

#include <cstdint>

#include "backend/cuda/kernels/decode_table.h"
#include "backend/cuda/rows/fused.h"
#include "backend/cuda/rows/plain_rows.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

struct RouterTask {
  const float* w = nullptr;  // [route.n_experts, cols]
  const float* bias = nullptr;
  const float* x = nullptr;  // where no norm makes it
  NormTask norm;             // of one row, without pre_w or halves; w null: there is none
  float* logits = nullptr;   // null: nobody else reads them
  int32_t cols = 0;
  RouteTask route;  // of one row; its logits are those made here
};

// What row `router` of the table takes (kernels/decode_table.h).
void router(const RouterTask& task, const Queue& queue);

}  // namespace assay::backend::cuda
