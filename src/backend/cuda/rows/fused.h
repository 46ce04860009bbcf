// Several ops of the plan in one kernel: the rows between two matrix products. Contracts as of the single ops; a null
// pointer among the outputs means that nobody reads that value.
#pragma once

#include <cstdint>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/kv_cache.h"
#include "backend/cuda/kernels/op_kernel.h"
#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/queue.h"
#include "ops/plan/plan.h"
#include "ops/rows/activation.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

// x = a, or a + b, or a + rms_norm(b); then rms_norm(x), then its integers.
struct NormTask {
  const float* a = nullptr;
  const float* b = nullptr;      // null: nothing is added
  const float* pre_w = nullptr;  // null: b is added as it is
  float pre_eps = 0;
  const float* w = nullptr;
  float eps = 0;
  int64_t d = 0, n_rows = 0;
  float* pre_y = nullptr;
  float* sum = nullptr;
  float* y = nullptr;
  quant::Activations q;        // q.q null: none
  uint16_t* halves = nullptr;  // y rounded to half precision or BF16 (mode fast); null: not
  bool is_bf16 = false;
};
// By a row of the table of ops of Kind norm (kernels/op_table.h).
void norm_rows(OpKernel kernel, const NormTask& task, const Queue& queue);

// Heads of queries, keys and values on their way to attention: rms_norm of each head of q and k, rotation, and the
// cache.
struct HeadsTask {
  CacheView cache;
  const float* q = nullptr;  // [n_tokens, n_heads, head_dim]
  const float* k = nullptr;  // [n_tokens, n_kv_heads, head_dim]
  const float* v = nullptr;
  const float* q_norm = nullptr;  // weights; null: no norm
  const float* k_norm = nullptr;
  float q_eps = 0, k_eps = 0;
  int64_t n_tokens = 0, n_heads = 0;
  RopeShape rope;
  const float* table = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* sequences = nullptr;
  float* q_normed = nullptr;
  float* k_normed = nullptr;
  float* q_rotated = nullptr;  // never null
  float* k_rotated = nullptr;

  // They have no norm, and nobody looks at them on their way to the cache.
  bool are_bare() const noexcept {
    const auto is_none = [](auto... pointers) { return ((pointers == nullptr) && ...); };
    return is_none(q_norm, k_norm, q_normed, k_normed, k_rotated);
  }
};
// By a row of Kind heads.
void heads(OpKernel kernel, const HeadsTask& task, const Queue& queue);

// The integers of rows.
void quantise_rows(const float* x, int64_t n_rows, const quant::Activations& out, const Queue& queue);

// activation(gate) * up and its integers; y may be null.
void gate_rows(const float* gate, const float* up, ops::ActivationFunction activation, int64_t n_rows, float* y,
               const quant::Activations& out, const Queue& queue);

// The merge of attention_split's segments and the integers of the result; task.y may be null.
void merge_rows(const AttentionTask& task, const quant::Activations& out, const Queue& queue);

}  // namespace assay::backend::cuda
