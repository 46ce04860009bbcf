// See state_table.h.
#include "backend/cpu/rows/state_table.h"

#include <algorithm>
#include <iterator>

#include "backend/cpu/runtime/run_state.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::backend::cpu {
namespace {

void borrow_state(const RunState& s, const ops::Op& op, const ops::StateRun<float>& at, int64_t begin,
                  int64_t end) noexcept {
  op.record.run(s.host_rows, at, begin, end);
}

template <class R, auto kernel>
void by_kernel(const RunState& s, const ops::Op& op, const ops::StateRun<float>& at, int64_t begin,
               int64_t end) noexcept {
  op.as<R>()->run_by(s.kernels.*kernel, s.host_rows, at, begin, end);
}

struct StateTableRow {
  const void* op;  // its type
  StateKernel kernel;
};
template <class R, auto kernel>
StateTableRow state_row() noexcept {
  return {ops::Record::type_of<R>(), by_kernel<R, kernel>};
}

}  // namespace

StateKernel state_kernel_of(const ops::Op& op) noexcept {
  const StateTableRow table[] = {state_row<ops::CausalConv, &KernelFunctions::causal_conv>(),
                                 state_row<ops::DeltaRule, &KernelFunctions::delta_rule>(),
                                 state_row<ops::SelectiveScan, &KernelFunctions::selective_scan>()};
  const auto* found = std::ranges::find(table, op.record.type(), &StateTableRow::op);
  return found == std::end(table) ? borrow_state : found->kernel;
}

bool is_borrowed(StateKernel kernel) noexcept { return kernel == borrow_state; }

}  // namespace assay::backend::cpu
