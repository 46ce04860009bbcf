// Attention split by sequence, KV head and blocks of query rows; for one token alone also by segments, whose shares are
// merged in the contract's order, so that no split changes a bit.
#include <algorithm>

#include "backend/cpu/runtime/steps.h"
#include "ops/attention/attention.h"

namespace assay::backend::cpu {
namespace {

using ops::kAttentionSegment;

// One token's attention over fewer elements of keys than this (some 4 microseconds) is not worth a fork.
constexpr int64_t kForkElements = 128 * 1024;

// Query heads that share one KV head, over one run of tokens. Row i is head i % n_group of the group and token i /
// n_group of the run.
struct HeadTask {
  const RunState& state;
  const ops::Attention& op;
  const ops::TokenRun& run;

  int64_t n_group() const noexcept { return op.n_heads / op.n_kv_heads; }
  int64_t n_rows() const noexcept { return n_group() * run.n; }
  int64_t n_blocks() const noexcept { return (n_rows() + kAttentionRows - 1) / kAttentionRows; }

  AttentionBlock block(int64_t kv_head, int64_t i_block) const noexcept {
    AttentionBlock made;
    made.cache = state.cache.head(op.layer, run.sequence, kv_head);
    made.scale = static_cast<float>(op.scale);
    made.softcap = static_cast<float>(op.softcap);
    const float* sinks = op.sinks == ops::kNone ? nullptr : state.small_weights[static_cast<size_t>(op.sinks)];
    const int64_t v_dim = made.cache.v_dim;
    made.n_rows = std::min(kAttentionRows, n_rows() - i_block * kAttentionRows);
    for (int64_t i = 0; i < made.n_rows; ++i) {
      const int64_t row = i_block * kAttentionRows + i;
      const int64_t token = run.begin + row / n_group();
      const int64_t head = kv_head * n_group() + row % n_group();
      made.q[i] = state.column(op.q, token, head * op.head_dim);
      made.y[i] = state.column(op.y, token, head * v_dim);
      made.sink[i] = sinks == nullptr ? nullptr : sinks + head;
      const int64_t position = run.position + row / n_group();
      made.last[i] = ops::last_visible(position, run.position + run.n, op);
      made.first[i] = ops::first_visible(position, op);
    }
    return made;
  }
};

// One token of one sequence: units are (KV head, block of rows, segment).
void run_by_segments(const HeadTask& task, float* partials) {
  const RunState& state = task.state;
  const int64_t position = task.run.position;
  const int64_t first = ops::first_visible(position, task.op) / kAttentionSegment;
  const int64_t n_segments = position / kAttentionSegment - first + 1;
  const int64_t blocks = task.n_blocks();
  const int64_t floats = partial_floats(state.cache.head(task.op.layer, 0, 0).v_cols);
  state.pool.run(task.op.n_kv_heads * blocks * n_segments, [&](int64_t unit, int thread) {
    const int64_t i_block = unit / n_segments;
    state.kernels.attention_segment(task.block(i_block / blocks, i_block % blocks), first + unit % n_segments,
                                    partials + unit * floats, state.scratch[static_cast<size_t>(thread)]);
  });
  for (int64_t i = 0; i < task.op.n_kv_heads * blocks; ++i) {
    state.kernels.attention_merge(task.block(i / blocks, i % blocks), first, n_segments,
                                  partials + i * n_segments * floats);
  }
}

}  // namespace

size_t attention_partials_bytes(const ops::Attention& op, int64_t v_dim, int64_t n_ctx) {
  const int64_t blocks = (op.n_heads / op.n_kv_heads + kAttentionRows - 1) / kAttentionRows;
  const int64_t segments = (n_ctx + kAttentionSegment - 1) / kAttentionSegment;
  return static_cast<size_t>(op.n_kv_heads * blocks * segments * partial_floats((v_dim + 15) / 16 * 16)) *
         sizeof(float);
}

void run_attention_step(const RunState& state, const ops::Attention& op, float* partials) {
  const auto& runs = state.shape.token_runs;
  if (runs.size() == 1 && runs[0].n == 1) {
    const int64_t n_keys = runs[0].position - ops::first_visible(runs[0].position, op) + 1;
    const HeadTask task{state, op, runs[0]};
    if (n_keys > kAttentionSegment && state.pool.n_threads() > 1 && state.kernels.attention_segment != nullptr) {
      return run_by_segments(task, partials);
    }
    if (n_keys * op.n_heads * op.head_dim < kForkElements) {
      for (int64_t i = 0; i < op.n_kv_heads * task.n_blocks(); ++i) {
        state.kernels.attention(task.block(i % op.n_kv_heads, i / op.n_kv_heads), state.scratch[0]);
      }
      return;
    }
  }
  int64_t n_units = 0;
  for (const ops::TokenRun& run : runs) n_units += op.n_kv_heads * HeadTask{state, op, run}.n_blocks();
  state.pool.run(n_units, [&](int64_t unit, int thread) {
    unit = n_units - 1 - unit;  // late tokens see most keys: longest work first
    for (const ops::TokenRun& run : runs) {
      const HeadTask task{state, op, run};
      const int64_t units = op.n_kv_heads * task.n_blocks();
      if (unit < units) {
        return state.kernels.attention(task.block(unit % op.n_kv_heads, unit / op.n_kv_heads),
                                       state.scratch[static_cast<size_t>(thread)]);
      }
      unit -= units;
    }
  });
}

}  // namespace assay::backend::cpu
