// All linears of one step as one parallel region, split by rows of their weights.
#include <algorithm>

#include "backend/cpu/linear/linear_thread.h"
#include "backend/cpu/runtime/steps.h"
#include "base/round_up.h"
#include "lower/placement.h"
#include "ops/linear/linear.h"

namespace assay::backend::cpu {
namespace {

// Units of work: enough of them that a thread which was held up is helped out, none so small that taking it costs more
// than it. With few tokens threads take several that follow one another (base/range_shares.h): what they wait for each
// other at the end is a unit's time. With many tokens a unit is longer, since what it does once for all its rows (their
// tokens in the order of its kernel) grows with the tokens, unless a thread does it once for all its units.
constexpr int64_t kUnitsPerThread = 64, kUnitsPerThreadMany = 4;
constexpr int64_t kUnitBytesMin = 8 * 1024;
constexpr int64_t kManyTokens = 16;
constexpr int64_t kLaidOutMax = 384 * 1024;  // elements that kernels for few tokens lay out in one pass

// Whether what a thread has laid out of the tokens serves all its units.
bool lays_out_once(const LinearStep& step, int64_t n_tokens) noexcept {
  for (size_t i = 0; i < step.tasks.size(); ++i) {
    if (step.choices[i].at(n_tokens).kernel.matrix.run_again == nullptr || n_tokens * step.tasks[i].k > kLaidOutMax)
      return false;
  }
  return true;
}

LinearTask make_task(const RunState& state, const ops::Linear& op, const LinearWork& work,
                     const ops::ExecutorOptions& options) {
  const tensor::TensorView& weights = state.plan.weights[static_cast<size_t>(op.w)].view;
  const ops::Value& y = state.plan.values[static_cast<size_t>(op.y)];
  LinearTask task;
  task.format = quant::find_format(weights.dtype);
  task.weights = weights.data.data();
  task.row_bytes = weights.row_bytes();
  task.k = weights.shape.cols();
  task.as_f32 = work.twin == ops::kNone;
  task.n_tokens = lower::rows_max(state.plan, op.y, options);
  if (!task.as_f32) task.x = state.twins[static_cast<size_t>(work.twin)];
  task.x_f32 =
      tensor::ConstMat(state.values[static_cast<size_t>(op.x)], task.n_tokens, task.k, state.layout(op.x).stride);
  task.bias = op.bias == ops::kNone ? nullptr : state.small_weights[static_cast<size_t>(op.bias)];
  task.y = tensor::Mat{state.values[static_cast<size_t>(op.y)], task.n_tokens, y.width, state.layout(op.y).stride};
  return task;
}

LinearSplit make_split(const RunState& state, const LinearStep& step, int64_t units_per_thread) {
  int64_t bytes = 0;
  for (const LinearTask& task : step.tasks) bytes += task.y.cols * task.row_bytes;
  const int64_t unit_bytes = std::max(kUnitBytesMin, bytes / (units_per_thread * state.pool.n_threads()));
  LinearSplit split;
  split.first_chunk.push_back(0);
  for (size_t i = 0; i < step.tasks.size(); ++i) {
    const LinearTask& task = step.tasks[i];
    const int64_t row_step = step.choices[i].row_step(task.n_tokens);
    const int64_t rows = std::max<int64_t>(1, unit_bytes / std::max<int64_t>(1, task.row_bytes));
    split.chunk_rows.push_back(base::round_up(rows, row_step));
    split.first_chunk.push_back(split.first_chunk.back() +
                                (task.y.cols + split.chunk_rows.back() - 1) / split.chunk_rows.back());
  }
  return split;
}

}  // namespace

LinearStep make_linear_step(const RunState& state, const Step& step, const ops::ExecutorOptions& options) {
  LinearStep made;
  for (const LinearWork& work : step.linears) {
    const auto& op = state.plan.ops[static_cast<size_t>(work.op)].get<ops::Linear>();
    made.tasks.push_back(make_task(state, op, work, options));
    made.choices.emplace_back(state.kernel_set, made.tasks.back(), state.kernel_row);
  }
  made.for_few = make_split(state, made, kUnitsPerThread);
  made.for_many = make_split(state, made, kUnitsPerThreadMany);
  return made;
}

void run_linear_step(const RunState& state, const LinearStep& step, int64_t n_tokens) {
  if (n_tokens == 0) return;
  const bool many = n_tokens >= kManyTokens && !lays_out_once(step, n_tokens);
  const LinearSplit& split = many ? step.for_many : step.for_few;
  const auto run = [&](LinearThread& thread, base::RangeShares::Range units) {
    size_t i = 0;
    while (units.begin >= split.first_chunk[i + 1]) ++i;
    for (; units.begin < units.end; units.begin = split.first_chunk[++i]) {
      LinearTask task = step.tasks[i];
      task.n_tokens = n_tokens;
      task.x.n_rows = n_tokens;
      task.x_f32.rows = n_tokens;
      task.y.rows = n_tokens;
      const auto row_of = [&](int64_t unit) {
        return std::min(task.y.cols, (unit - split.first_chunk[i]) * split.chunk_rows[i]);
      };
      thread.rows(step.choices[i].at(n_tokens), task, row_of(units.begin), row_of(units.end));
    }
  };
  const int64_t n_units = split.first_chunk.back();
  if (many) {
    return state.pool.run(n_units, [&](int64_t unit, int thread) {
      LinearThread once(state.scratch[static_cast<size_t>(thread)]);
      run(once, {unit, unit + 1});
    });
  }
  state.shares->reset(n_units);
  state.pool.run(state.pool.n_threads(), [&](int64_t, int thread) {
    LinearThread own(state.scratch[static_cast<size_t>(thread)]);
    for (auto units = state.shares->take(thread); !units.empty(); units = state.shares->take(thread)) run(own, units);
  });
}

}  // namespace assay::backend::cpu
