// See kernel_uses.h.
#include "backend/cpu/linear/kernel_uses.h"

#include <string>

#include "lower/views.h"
#include "ops/rows/join.h"
#include "ops/rows/slice.h"

namespace assay::backend::cpu {
namespace {

std::vector<ops::KernelUse> uses_of(Kernels set, const LinearChoice& choice) {
  std::vector<ops::KernelUse> uses;
  for (const LinearRange& range : choice.ranges()) {
    const bool has_kernel = range.kernel.is_there();
    const std::string use = has_kernel ? std::string(name(set)) + " " + std::string(range.name) : "reference";
    uses.push_back({range.tokens_min, range.tokens_max == kAnyTokens ? 0 : range.tokens_max, use,
                    !has_kernel && set != Kernels::reference});
  }
  return uses;
}

// An op with one kernel for any number of tokens, or none.
std::vector<ops::KernelUse> use_of(Kernels set, bool is_borrowed) {
  const bool borrowed = is_borrowed && set != Kernels::reference;
  return {{1, 0, borrowed ? "reference" : std::string(name(set)), borrowed}};
}

// "view of X" of a slice that is not copied, "A, B in place" of a join that copies neither, "A in place" of one that
// copies the other part alone; else nothing.
std::string place_of(const Lowered& lowered, int32_t i_op) {
  const auto name_of = [&](ops::ValueId id) { return lowered.plan.values[static_cast<size_t>(id)].name; };
  const ops::Op& op = lowered.plan.ops[static_cast<size_t>(i_op)];
  const lower::Views& views = lowered.schedule.views;
  if (const auto* slice = op.as<ops::Slice>())
    return lower::is_view_of_input(*slice, views) ? "view of " + name_of(slice->x) : "";
  const auto* join = op.as<ops::Join>();
  if (join == nullptr) return "";
  const auto [a, b] = lower::parts_in_place(*join, views);
  std::string names = a ? name_of(join->a) : "";
  if (b) names += (a ? ", " : "") + name_of(join->b);
  return names.empty() ? names : names + " in place";
}

}  // namespace

std::vector<ops::KernelUse> kernel_uses(const Lowered& lowered, int32_t i_op) {
  for (size_t i = 0; i < lowered.schedule.steps.size(); ++i) {
    const Step& step = lowered.schedule.steps[i];
    for (size_t j = 0; j < step.linears.size(); ++j) {
      if (step.linears[j].op == i_op) return uses_of(lowered.set, lowered.linear_steps[i].choices[j]);
    }
    for (const RowWork& work : step.rows) {
      if (work.op != i_op) continue;
      const std::string place = place_of(lowered, i_op);
      if (!place.empty()) return {{1, 0, place, false}};
      return use_of(lowered.set, is_borrowed(work.kernel));
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
