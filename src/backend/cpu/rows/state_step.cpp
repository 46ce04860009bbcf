// Ops that keep a state: a thread takes a few units (heads, columns) through all tokens of the batch, in order.
#include <algorithm>

#include "backend/cpu/runtime/steps.h"

namespace assay::backend::cpu {
namespace {

// Below this many products a fork costs more than it gives.
constexpr int64_t kStateForkProducts = 16 * 1024;

}  // namespace

void run_state_step(const RunState& state, const Step& step) {
  const ops::StateLayer& layer = state.plan.states[static_cast<size_t>(step.state)];
  const ops::Op& op = state.plan.ops[static_cast<size_t>(step.op)];
  const auto run = [&](int64_t begin, int64_t end) {
    state.states.run(step.state, begin, end,
                     [&](const ops::StateRun<float>& at) { step.state_kernel(state, op, at, begin, end); });
  };
  const auto n_tokens = static_cast<int64_t>(state.tokens.size());
  if (n_tokens * layer.n_floats() < kStateForkProducts) return run(0, layer.n_units);
  const int64_t n_tasks = std::min<int64_t>(layer.n_units, 4 * state.pool.n_threads());
  state.pool.run(n_tasks, [&](int64_t i, int) { run(i * layer.n_units / n_tasks, (i + 1) * layer.n_units / n_tasks); });
}

}  // namespace assay::backend::cpu
