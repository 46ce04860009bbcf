// Ops of all families that work row by row, one simple kernel each, and attention of every kind that the fast kernels
// do not know; contracts: ops/*.h. Pointers are the device's; rows lie without gaps; n: elements of all rows.
#pragma once

#include <cstdint>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/linear/route.h"
#include "ops/rows/activation.h"

namespace assay::backend::cuda {

void scale(const float* x, float factor, int64_t n, float* y, const Queue& queue);
void clamp(const float* x, float limit, int64_t n, float* y, const Queue& queue);
void softcap(const float* x, float cap, int64_t n, float* y, const Queue& queue);
void activate(const float* x, ops::ActivationFunction activation, int64_t n, float* y, const Queue& queue);
void add_columns(const float* x, const float* w, int64_t width, int64_t n, float* y, const Queue& queue);
// Factor i multiplies run_width columns.
void scale_columns(const float* x, const float* w, int64_t n_factors, int64_t run_width, int64_t n, float* y,
                   const Queue& queue);
// Element j of the gate multiplies run_width of up.
void gate_any(const float* gate, const float* up, ops::ActivationFunction activation, int64_t run_width, int64_t n,
              float* y, const Queue& queue);
void clamped_gate(const float* gate, const float* up, float alpha, float limit, int64_t n, float* y,
                  const Queue& queue);
void expert_scale(const float* x, const float* routes, int64_t n_used, int64_t d, int64_t n, float* y,
                  const Queue& queue);
void expert_sum(const float* x, const float* routes, int64_t n_used, int64_t d, int64_t n, float* y,
                const Queue& queue);  // routes null: no weights

// Run i of x, `stride` further each, and `width` of its elements from `first` on, become those of run i of y; run i /
// x_repeats of x.
struct CopyRuns {
  const float* x;
  int64_t x_stride, x_first;
  float* y;
  int64_t y_stride, y_first, width, x_repeats;
};
void copy_runs(const CopyRuns& copy, int64_t n_runs, const Queue& queue);

// A warp a run of d elements, element j in lane j % 32.
struct LayerNormTask {
  const float *x, *w, *bias;  // w, bias: null where there are none
  float eps;
  int64_t d, n_runs, n_weights;  // run i has the i % n_weights-th d weights
  float* y;
};
void layer_norm(const LayerNormTask& task, const Queue& queue);
void l2_norm(const float* x, float eps, int64_t d, int64_t n_runs, float* y, const Queue& queue);

// A warp a token: scores and choice of all experts lie in shared memory.
struct RouteTask {
  const float *logits = nullptr, *bias = nullptr, *expert_scales = nullptr;
  ops::Gating gating = ops::Gating::softmax;
  int32_t n_experts = 0, n_used = 0, n_groups = 1, n_groups_used = 1;
  bool group_by_best = false, normalise = false;
  float scale = 1, least_sum = 0, near = 0;
  int64_t n_rows = 0;
  float* y = nullptr;
};
void route(const RouteTask& task, const Queue& queue);

// Softcap, sinks, chunks, later positions, values of another width than keys or within them, heads of any width.
struct AnyAttentionTask {
  CacheView cache;
  const float* q = nullptr;  // [n_tokens, n_heads, head_dim]
  float* y = nullptr;        // [n_tokens, n_heads, v_dim]
  const float* sinks = nullptr;
  int64_t n_heads = 0, window = 0, chunk = 0;
  float scale = 0, softcap = 0;
  bool causal = true;
  const TokenTile* tiles = nullptr;
  int64_t n_tiles = 0;
  int32_t tile_tokens = 1;  // of a tile at most
  const int32_t* sequences = nullptr;
  int64_t n_tokens = 0;
};
void attention_any(const AnyAttentionTask& task, const Queue& queue);

}  // namespace assay::backend::cuda
