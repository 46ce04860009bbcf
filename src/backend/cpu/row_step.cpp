// Ops that work token by token. A thread takes a few tokens through all ops of the step, while they are in its cache.
#include <algorithm>
#include <variant>

#include "backend/cpu/steps.h"
#include "ops/embed.h"
#include "quant/format.h"

namespace assay::backend::cpu {
namespace {

// Below this many floats written a fork costs more than it gives.
constexpr int64_t kForkFloats = 32 * 1024;

// Runs one op on rows [begin, end).
class RowRunner {
 public:
  RowRunner(const RunState& state, int64_t begin, int64_t end, std::byte* scratch)
      : s_(state), begin_(begin), end_(end), scratch_(scratch) {}

  void operator()(const ops::Embed& op) const noexcept {
    const tensor::TensorView& table = s_.plan.weights[static_cast<size_t>(op.table)].view;
    const quant::Format& format = *quant::find_format(table.dtype);
    const auto scale = static_cast<float>(op.scale);
    const int64_t d = s_.width(op.y);
    for (int64_t t = begin_; t < end_; ++t) {
      ops::embed_ref(format, table.row(s_.tokens[static_cast<size_t>(t)]), d, scale, s_.row(op.y, t));
    }
  }

  void operator()(const ops::RmsNorm& op) const noexcept {
    const float* w = s_.small_weights[static_cast<size_t>(op.w)];
    const int64_t n_runs = s_.width(op.y) / op.d;
    for (int64_t t = begin_; t < end_; ++t) {
      for (int64_t i = 0; i < n_runs; ++i) s_.kernels.rms_norm(s_.row(op.x, t) + i * op.d, w, op.eps, op.d, s_.row(op.y, t) + i * op.d);
    }
  }

  void operator()(const ops::Rope& op) const noexcept {
    const ops::RopeTable& table = s_.rope_tables[static_cast<size_t>(op.rope)];
    const ops::RopeSpec& spec = table.spec();
    for (int64_t t = begin_; t < end_; ++t) {
      const int64_t position = s_.positions[static_cast<size_t>(s_.token_of(op.y, t))];
      for (int64_t i = 0; i < op.n_heads; ++i) {
        s_.kernels.rope(s_.row(op.x, t) + i * op.head_dim, table.cos(position), table.sin(position), spec.dim, spec.interleaved,
                        op.head_dim, s_.row(op.y, t) + i * op.head_dim);
      }
    }
  }

  void operator()(const ops::KvStore& op) const noexcept {
    const ops::CacheLayer& layer = s_.plan.cache_layers[static_cast<size_t>(op.layer)];
    for (int64_t i = 0; i < layer.n_kv_heads; ++i) {
      for (int64_t t = begin_; t < end_; ++t) {
        const CacheHead head = s_.cache.head(op.layer, s_.sequence_of(t), i);
        const int64_t position = s_.positions[static_cast<size_t>(t)];
        s_.kernels.store_key(head, position, s_.row(op.k, t) + i * layer.head_dim, scratch_);
        s_.kernels.store_value(head, position, s_.row(op.v, t) + i * layer.head_dim, scratch_);
      }
    }
  }

  void operator()(const ops::Add& op) const noexcept {
    const int64_t width = s_.width(op.y);
    s_.kernels.add(s_.row(op.a, begin_), s_.row(op.b, begin_), (end_ - begin_) * width, s_.row(op.y, begin_));
  }

  void operator()(const ops::Gate& op) const noexcept {
    const auto kernel = op.activation == ops::GateActivation::silu ? s_.kernels.gate_silu : s_.kernels.gate_gelu_tanh;
    kernel(s_.row(op.gate, begin_), s_.row(op.up, begin_), (end_ - begin_) * s_.width(op.y), s_.row(op.y, begin_));
  }

  void operator()(const ops::SelectOutputs& op) const noexcept {
    const int64_t width = s_.width(op.y);
    for (int64_t i = begin_; i < end_; ++i) {
      std::copy_n(s_.row(op.x, s_.shape.selected[static_cast<size_t>(i)]), width, s_.row(op.y, i));
    }
  }

  void operator()(const ops::Linear&) const noexcept {}     // never in a rows step
  void operator()(const ops::Attention&) const noexcept {}  // never in a rows step
  void operator()(const ops::Gather&) const noexcept {}     // never in a rows step

  void quantise(int32_t id) const noexcept {
    const ops::ValueId x = s_.quantised_values[static_cast<size_t>(id)];
    const tensor::ConstMat rows(s_.values[static_cast<size_t>(x)], end_, s_.width(x), s_.width(x));
    quantise_rows(s_.kernel_set, rows, s_.quantised[static_cast<size_t>(id)], begin_, end_);
  }

 private:
  const RunState& s_;
  int64_t begin_, end_;
  std::byte* scratch_;
};

}  // namespace

void run_row_step(const RunState& state, const Step& step) {
  const int64_t n_rows = state.n_rows(step.outputs_only);
  const auto run = [&](int64_t begin, int64_t end, int thread) {
    const RowRunner runner(state, begin, end, state.scratch[static_cast<size_t>(thread)]);
    for (const RowWork& work : step.rows) {
      if (work.op == ops::kNone) {
        runner.quantise(work.quantised);
      } else {
        std::visit(runner, state.plan.ops[static_cast<size_t>(work.op)].record);
      }
    }
  };
  int64_t floats = 0;
  for (const RowWork& work : step.rows) floats += work.floats;
  if (n_rows * floats < kForkFloats) return run(0, n_rows, 0);
  const int64_t rows_per_task = std::clamp<int64_t>(kForkFloats / (4 * floats), 1, std::max<int64_t>(n_rows / state.pool.n_threads(), 1));
  const int64_t n_tasks = (n_rows + rows_per_task - 1) / rows_per_task;
  state.pool.run(n_tasks, [&](int64_t i, int thread) {
    run(i * rows_per_task, std::min(n_rows, (i + 1) * rows_per_task), thread);
  });
}

}  // namespace assay::backend::cpu
