// The table of references, and the choice of what overwrites it.
#include "backend/cpu/sets/kernels.h"

#include <algorithm>

#include "backend/cpu/sets/kernel_set.h"
#include "ops/attention/attention.h"
#include "ops/attention/choose_keys.h"
#include "ops/attention/rope.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"

namespace assay::backend::cpu {
namespace {

void store_key_reference(const CacheHead& head, int64_t position, const float* k, std::byte* scratch) noexcept {
  ops::cache_encode_ref(head.type_k, k, head.head_dim, scratch);
  put_key(head, position, scratch);
}

void store_value_reference(const CacheHead& head, int64_t position, const float* v, std::byte* scratch) noexcept {
  ops::cache_encode_ref(head.type_v, v, head.v_dim, scratch);
  put_value(head, position, scratch);
}

// scratch: one stored row, then all keys and all values of the head as floats.
size_t attention_scratch_reference(int64_t head_dim, int64_t v_dim, int64_t n_ctx) noexcept {
  return static_cast<size_t>(std::max(head_dim, v_dim) + (head_dim + v_dim) * n_ctx) * sizeof(float);
}

void attention_reference(const AttentionBlock& block, std::byte* scratch) noexcept {
  const int64_t head_dim = block.cache.head_dim, v_dim = block.cache.v_dim;
  const int64_t n = block.last[block.n_rows - 1] + 1;
  auto* keys = reinterpret_cast<float*>(scratch) + std::max(head_dim, v_dim);
  float* values = keys + n * head_dim;
  for (int64_t position = block.first[0]; position < n; ++position) {
    get_key(block.cache, position, scratch);
    ops::cache_decode_ref(block.cache.type_k, scratch, head_dim, keys + position * head_dim);
    if (block.cache.values_in_keys()) {
      std::copy_n(keys + position * head_dim, v_dim, values + position * v_dim);
      continue;
    }
    get_value(block.cache, position, scratch);
    ops::cache_decode_ref(block.cache.type_v, scratch, v_dim, values + position * v_dim);
  }
  for (int64_t r = 0; r < block.n_rows; ++r) {
    ops::attention_ref(block.q[r], {keys, n, head_dim, head_dim}, {values, n, v_dim, v_dim}, block.first[r],
                       block.last[r], {block.scale, block.softcap, block.sink[r]}, block.y[r]);
  }
}

// scratch: one stored row, and the key as floats.
void index_scores_reference(const IndexBlock& block, int64_t begin, int64_t end, std::byte* scratch) noexcept {
  const int64_t head_dim = block.keys.head_dim;
  float* key = reinterpret_cast<float*>(scratch) + head_dim;
  for (int64_t position = begin; position < end; ++position) {
    get_key(block.keys, position, scratch);
    ops::cache_decode_ref(block.keys.type_k, scratch, head_dim, key);
    block.scores[position] = ops::index_score_ref(block.q, block.weights, key, block.n_heads, head_dim);
  }
}

}  // namespace

KernelFunctions make_kernels(Kernels set) noexcept {
  KernelFunctions kernels{};
  kernels.rms_norm = ops::rms_norm_ref;
  kernels.rope = ops::rope_ref;
  kernels.add = ops::add_ref;
  for (size_t i = 0; i < ops::kNActivationFunctions; ++i) {
    kernels.gate[i] = ops::gate_ref(static_cast<ops::ActivationFunction>(i));
    kernels.activate[i] = ops::activate_ref(static_cast<ops::ActivationFunction>(i));
  }
  kernels.clamped_gate = ops::clamped_gate_ref;
  kernels.softcap = ops::softcap_ref;
  kernels.expert_sum = ops::expert_sum_ref;
  kernels.layer_norm = ops::layer_norm_ref;
  kernels.causal_conv = ops::causal_conv_ref;
  kernels.delta_rule = ops::delta_rule_ref;
  kernels.selective_scan = ops::selective_scan_ref;
  kernels.store_key = store_key_reference;
  kernels.store_value = store_value_reference;
  kernels.attention = attention_reference;
  kernels.attention_scratch_bytes = attention_scratch_reference;
  kernels.index_scores = index_scores_reference;
  if (const KernelSetParts* functions = functions_of(set)) functions->add_kernels(kernels);
  return kernels;
}

}  // namespace assay::backend::cpu
