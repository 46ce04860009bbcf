// Ops that keep a state of a sequence, on the device; contracts: ops/state/causal_conv.h, delta_rule.h,
// selective_scan.h. Pointers are the device's; rows lie without gaps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/op_kernel.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

// One op's states of all sequences, and the batch at work. Of a sequence place p begins at memory + sequence *
// sequence_stride + p * place_stride: places 0 and 1 have the state after an even and an odd number of positions, so
// that a run of one token leaves the state before it; place 1 + i the checkpoint of slot i.
struct StateView {
  float* memory = nullptr;
  int64_t sequence_stride = 0, place_stride = 0;  // in floats
  int32_t interval = 1, n_slots = 0, n_sequences = 1;
  const int32_t *sequences = nullptr, *positions = nullptr;  // of each token
  int32_t n_tokens = 0;
  int32_t n_parts = 1;  // of consecutive tokens of a sequence; how an op is divided may go by it, no bit does

  // As many walk through the batch, each of them through another sequence or none (state_walk.cuh).
  int32_t n_walkers() const noexcept { return std::min(n_tokens, n_sequences); }
};

struct ConvTask {
  StateView state;
  const float *x = nullptr, *w = nullptr, *bias = nullptr;  // bias: null where there is none
  int64_t d = 0, kernel = 0;
  float* y = nullptr;
};
void causal_conv(const ConvTask& task, const Queue& queue);

struct DeltaTask {
  StateView state;
  const float *q = nullptr, *k = nullptr, *v = nullptr, *decay = nullptr, *strength = nullptr;
  int32_t n_heads = 0, n_key_heads = 0, d_k = 0, d_v = 0;
  bool tiled = false, decay_by_row = false;  // by_row: a decay for each of d_k
  float* y = nullptr;
};
// By a row of the table of ops (kernels/op_table.h): delta_walk, delta or delta_in_memory.
void delta_rule(OpKernel kernel, const DeltaTask& task, const Queue& queue);

struct ScanTask {
  StateView state;
  const float *x = nullptr, *dt = nullptr, *b = nullptr, *c = nullptr, *a = nullptr, *d = nullptr;  // d: or null
  int32_t n_heads = 0, n_groups = 0, head_dim = 0, d_state = 0;
  bool a_by_state = false;  // an element for each of d_state
  float* y = nullptr;
};
void selective_scan(const ScanTask& task, const Queue& queue);

}  // namespace assay::backend::cuda
