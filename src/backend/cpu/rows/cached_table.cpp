// See cached_table.h.
#include "backend/cpu/rows/cached_table.h"

#include <algorithm>
#include <iterator>

#include "backend/cpu/rows/cached_kernels.h"
#include "backend/cpu/runtime/run_state.h"
#include "ops/attention/attention.h"
#include "ops/attention/choose_keys.h"
#include "ops/attention/sparse_attention.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/op_values.h"

namespace assay::backend::cpu {
namespace {

// ---- The reference. All of a sequence's keys and values are read back for every run of tokens: threads share out
// positions, then tokens.
//
//   RunState::read_back   keys [n_ctx][n_kv_heads][head_dim], values [n_ctx][n_kv_heads][v_dim], in order of position
//   a thread's scratch    [n_ctx] floats, [n_ctx] integers; before that, one stored head of a position
struct ReadBack {
  const ops::CacheLayer& layer;
  int64_t k_stride, v_stride;  // floats of a position

  ReadBack(const RunState& s, const ops::Op& op)
      : layer(s.plan.cache_layers[static_cast<size_t>(ops::cache_layer_of(op))]),
        k_stride(layer.n_kv_heads * layer.head_dim), v_stride(layer.n_kv_heads * layer.stored_v_dim()) {}
};

size_t borrowed_thread_bytes(const RunState& s, const ops::Op& op) {
  const ReadBack rows(s, op);
  const auto n_ctx = static_cast<size_t>(s.n_ctx),
             row = static_cast<size_t>(std::max(rows.layer.head_dim, rows.layer.v_dim()));
  return std::max(n_ctx * (sizeof(float) + sizeof(int32_t)), row * sizeof(float));
}

size_t borrowed_shared_bytes(const RunState& s, const ops::Op& op) {
  const ReadBack rows(s, op);
  return static_cast<size_t>(s.n_ctx * (rows.k_stride + rows.v_stride)) * sizeof(float);
}

void borrow_cached(const RunState& s, const ops::Op& op) {
  const ReadBack rows(s, op);
  const int32_t layer = ops::cache_layer_of(op);
  float *keys = s.read_back, *values = keys + s.n_ctx * rows.k_stride;
  for (const ops::TokenRun& run : s.shape.token_runs) {
    const int64_t n = s.shape.n_positions[static_cast<size_t>(run.sequence)];
    s.pool.run(n * rows.layer.n_kv_heads, [&](int64_t i, int thread) {
      const int64_t position = i / rows.layer.n_kv_heads, kv_head = i % rows.layer.n_kv_heads;
      const CacheHead head = s.cache.head(layer, run.sequence, kv_head);
      std::byte* stored = s.scratch[static_cast<size_t>(thread)];
      get_key(head, position, stored);
      ops::cache_decode_ref(head.type_k, stored, head.head_dim,
                            keys + position * rows.k_stride + kv_head * head.head_dim);
      if (head.values_in_keys()) return;
      get_value(head, position, stored);
      ops::cache_decode_ref(head.type_v, stored, head.v_dim, values + position * rows.v_stride + kv_head * head.v_dim);
    });
    s.pool.run(run.n, [&](int64_t i, int thread) {
      auto* scratch = reinterpret_cast<float*>(s.scratch[static_cast<size_t>(thread)]);
      ops::CachedRun<float> at{n, keys, rows.k_stride, values, rows.v_stride, scratch};
      if (rows.layer.values_in_keys) at.values = keys, at.v_stride = rows.k_stride;
      at.order = reinterpret_cast<int32_t*>(scratch + s.n_ctx);
      op.record.run(s.host_rows, at, run.begin + i, run.begin + i + 1);
    });
  }
}

struct CachedTableRow {
  const void* op;  // its type
  CachedKernel kernel;
};

}  // namespace

CachedKernel cached_kernel_of(const ops::Op& op) noexcept {
  const CachedTableRow table[] = {
      {ops::Record::type_of<ops::ChooseKeys>(), {run_choose_keys, choose_keys_bytes}},
      {ops::Record::type_of<ops::SparseAttention>(), {run_sparse_attention, sparse_attention_bytes}}};
  const auto* found = std::ranges::find(table, op.record.type(), &CachedTableRow::op);
  return found == std::end(table) ? CachedKernel{borrow_cached, borrowed_thread_bytes, borrowed_shared_bytes}
                                  : found->kernel;
}

bool is_borrowed(const CachedKernel& kernel) noexcept { return kernel.run == borrow_cached; }

}  // namespace assay::backend::cpu
