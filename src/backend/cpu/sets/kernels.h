// The table of the CPU's small kernels: everything but matrix products (linear.h). It starts full of references; a
// set's fast kernels overwrite their slots and have the same bits. Contracts: ops/<op>.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/runtime/kv_cache.h"
#include "ops/linear/expert_sum.h"
#include "ops/rows/activate.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/softcap.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::backend::cpu {

// Rows that one call of an attention kernel takes at most, so that a key or value loaded serves them all.
inline constexpr int64_t kAttentionRows = 12;

// Some query rows over one KV head. Rows share nothing but the keys and values they read; their ranges ascend with the
// rows.
struct AttentionBlock {
  CacheHead cache;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  int64_t n_rows = 0;
  const float* q[kAttentionRows] = {};
  float* y[kAttentionRows] = {};
  int64_t first[kAttentionRows] = {};  // visible positions
  int64_t last[kAttentionRows] = {};
  const float* sink[kAttentionRows] = {};  // null: none
};

// A token's index heads over the index keys of its sequence (ops/attention/choose_keys.h).
struct IndexBlock {
  CacheHead keys;
  const float* q = nullptr;        // [n_heads, head_dim]
  const float* weights = nullptr;  // [n_heads]
  int64_t n_heads = 0;
  float* scores = nullptr;  // of position 0 on
};
constexpr size_t index_scratch_bytes(int64_t head_dim) noexcept {
  return static_cast<size_t>(16 * head_dim) * sizeof(float);
}

// One segment's share (m, l, o) of each row: m [kAttentionRows], l [kAttentionRows], then o [kAttentionRows][v_cols].
inline constexpr int64_t kPartialL = 16, kPartialO = 32;  // where l and o begin
constexpr int64_t partial_floats(int64_t v_cols) noexcept { return kPartialO + kAttentionRows * v_cols; }

struct KernelFunctions {
  // y may alias x. One run of d elements.
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t d, float* y) noexcept;
  // One head: angles of one position, cos and sin [dim / 2]; y may alias x.
  void (*rope)(const float* x, const float* cos, const float* sin, int64_t dim, bool interleaved, int64_t head_dim,
               float* y) noexcept;
  // n elements; y may alias an input.
  void (*add)(const float* a, const float* b, int64_t n, float* y) noexcept;
  ops::GateFunction gate[ops::kNActivationFunctions];
  ops::ActivateFunction activate[ops::kNActivationFunctions];
  decltype(&ops::clamped_gate_ref) clamped_gate;
  decltype(&ops::softcap_ref) softcap;
  decltype(&ops::expert_sum_ref) expert_sum;          // one token's row; y aliases nothing
  decltype(&ops::layer_norm_ref) layer_norm;          // one run of d elements
  decltype(&ops::causal_conv_ref) causal_conv;        // one unit
  decltype(&ops::delta_rule_ref) delta_rule;          // one token of one head
  decltype(&ops::selective_scan_ref) selective_scan;  // likewise
  // One position of one KV head into the cache. scratch: cache_row_bytes.
  void (*store_key)(const CacheHead& head, int64_t position, const float* k, std::byte* scratch) noexcept;
  void (*store_value)(const CacheHead& head, int64_t position, const float* v, std::byte* scratch) noexcept;

  // scratch: attention_scratch_bytes.
  void (*attention)(const AttentionBlock& block, std::byte* scratch) noexcept;
  size_t (*attention_scratch_bytes)(int64_t head_dim, int64_t v_dim, int64_t n_ctx) noexcept;
  // The same in parts, null where a set has no such kernel: the share of one segment, into partial; then n_segments of
  // them, from segment `first` on, merged in ascending order and written.
  void (*attention_segment)(const AttentionBlock& block, int64_t segment, float* partial, std::byte* scratch) noexcept;
  void (*attention_merge)(const AttentionBlock& block, int64_t first, int64_t n_segments, float* partials) noexcept;

  // Scores of the positions begin .. end - 1, where begin is a multiple of kKeyTile; what lies up to the next multiple
  // behind end may be written too. scratch: index_scratch_bytes.
  void (*index_scores)(const IndexBlock& block, int64_t begin, int64_t end, std::byte* scratch) noexcept;
};

KernelFunctions make_kernels(Kernels set) noexcept;

}  // namespace assay::backend::cpu
