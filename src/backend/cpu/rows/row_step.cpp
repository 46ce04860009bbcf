// Ops that work token by token. A thread takes a few tokens through all ops of the step, while they are in its cache.
#include <algorithm>

#include "backend/cpu/runtime/steps.h"
#include "ops/rows/activation.h"

namespace assay::backend::cpu {
namespace {

// Below this many floats written a fork costs more than it gives.
constexpr int64_t kForkFloats = 32 * 1024;

void quantise(const RunState& s, int32_t id, int64_t begin, int64_t end) noexcept {
  const ops::ValueId x = s.twin_values[static_cast<size_t>(id)];
  const tensor::ConstMat rows(s.values[static_cast<size_t>(x)], end, s.width(x), s.layout(x).stride);
  quantise_rows(s.kernel_set, rows, s.twins[static_cast<size_t>(id)], begin, end);
}

}  // namespace

void run_row_step(const RunState& state, const Step& step) {
  const int64_t n_rows = state.n_rows(step.domain);
  const auto run = [&](int64_t begin, int64_t end, int thread) {
    for (const RowWork& work : step.rows) {
      if (work.op == ops::kNone) {
        quantise(state, work.twin, begin, end);
      } else {
        work.kernel(state, state.plan.ops[static_cast<size_t>(work.op)], begin, end,
                    state.scratch[static_cast<size_t>(thread)]);
      }
    }
  };
  int64_t floats = 0;
  for (const RowWork& work : step.rows) floats += work.floats;
  if (n_rows * floats < kForkFloats) return run(0, n_rows, 0);
  const int64_t rows_per_task =
      std::clamp<int64_t>(kForkFloats / (4 * floats), 1, std::max<int64_t>(n_rows / state.pool.n_threads(), 1));
  const int64_t n_tasks = (n_rows + rows_per_task - 1) / rows_per_task;
  state.pool.run(n_tasks, [&](int64_t i, int thread) {
    run(i * rows_per_task, std::min(n_rows, (i + 1) * rows_per_task), thread);
  });
}

}  // namespace assay::backend::cpu
