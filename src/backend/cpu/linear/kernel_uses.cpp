// See kernel_uses.h.
#include "backend/cpu/linear/kernel_uses.h"

#include <string>

namespace assay::backend::cpu {
namespace {

std::vector<ops::KernelUse> uses_of(KernelSet set, const LinearChoice& choice) {
  std::vector<ops::KernelUse> uses;
  for (const LinearRange& range : choice.ranges()) {
    const bool has_kernel = range.kernel.is_there();
    const std::string use = has_kernel ? std::string(name(set)) + " " + std::string(range.name) : "reference";
    uses.push_back({range.tokens_min, range.tokens_max == kAnyTokens ? 0 : range.tokens_max, use,
                    !has_kernel && set != KernelSet::reference});
  }
  return uses;
}

// An op with one kernel for any number of tokens, or none.
std::vector<ops::KernelUse> use_of(KernelSet set, bool is_borrowed) {
  const bool borrowed = is_borrowed && set != KernelSet::reference;
  return {{1, 0, borrowed ? "reference" : std::string(name(set)), borrowed}};
}

}  // namespace

std::vector<ops::KernelUse> kernel_uses(const Lowered& lowered, int32_t i_op) {
  for (size_t i = 0; i < lowered.schedule.steps.size(); ++i) {
    const Step& step = lowered.schedule.steps[i];
    for (size_t j = 0; j < step.linears.size(); ++j) {
      if (step.linears[j].op == i_op) return uses_of(lowered.set, lowered.linear_steps[i].choices[j]);
    }
    for (const RowWork& work : step.rows) {
      if (work.op == i_op) return use_of(lowered.set, is_borrowed(work.kernel));
    }
    if (step.op != i_op) continue;
    if (step.kind == Step::Kind::state) return use_of(lowered.set, is_borrowed(step.state_kernel));
    if (step.kind == Step::Kind::cached) return use_of(lowered.set, is_borrowed(step.cached_kernel));
    if (step.kind != Step::Kind::experts) return use_of(lowered.set, false);
    return uses_of(lowered.set,
                   lowered.experts.choice_of(lowered.plan.ops[static_cast<size_t>(i_op)].get<ops::ExpertLinear>()));
  }
  return {};
}

}  // namespace assay::backend::cpu
