// See kernel_uses.h. Decode of one token has groups of its own; from two tokens on, and where no group has the op, the
// fusion group's rows count.
#include "backend/cuda/kernels/kernel_uses.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "ops/plan/op_values.h"

namespace assay::backend::cuda {
namespace {

using lower::FusionGroup;
using ops::kNone;

class Uses {
 public:
  // Of the tokens tokens_min .. tokens_max, behind those that are there.
  void add(int64_t tokens_min, int64_t tokens_max, std::string_view name) {
    if (tokens_max < next_) return;
    const std::string use = "cuda " + std::string(name);
    const int64_t first = std::max(tokens_min, next_), last = tokens_max == kAnyTokens ? 0 : tokens_max;
    next_ = tokens_max + 1;
    if (!uses_.empty() && uses_.back().name == use) {
      uses_.back().tokens_max = last;
    } else {
      uses_.push_back({first, last, use, false});
    }
  }
  std::vector<ops::KernelUse> take() { return std::move(uses_); }

 private:
  std::vector<ops::KernelUse> uses_;
  int64_t next_ = 1;
};

// A batch of one token; empty: as the fusion group has it.
std::string_view name_for_one(const DecodeGroup& group, const KernelPlan& kernels, const Schedule& schedule) {
  switch (group.kind) {
    case DecodeGroup::Kind::linears: return group.row->name;
    case DecodeGroup::Kind::attention:
      return kernels.attention(schedule.groups[static_cast<size_t>(group.attention)]).one_token->name;
    case DecodeGroup::Kind::routes: return "router";
    case DecodeGroup::Kind::nothing: return "none: its readers do it";
    case DecodeGroup::Kind::alone: return {};
  }
  return {};
}

void add_attention(const AttentionChoice& choice, Uses& uses) {
  uses.add(1, kSplitTokensMax, choice.alone->name);
  uses.add(kSplitTokensMax + 1, kAnyTokens,
           std::string(choice.tiles->name) + "; tokens of a sequence each: " + std::string(choice.alone->name));
}

void add_group(const ops::Plan& plan, const FusionGroup& group, const KernelPlan& kernels, int32_t i_op, Uses& uses) {
  const ops::Op& op = plan.ops[static_cast<size_t>(i_op)];
  switch (group.kind) {
    case FusionGroup::Kind::linears:
      if (group.twin == kNone) {
        for (const FloatRange& range : kernels.floats(i_op).ranges())
          uses.add(range.tokens_min, range.tokens_max, range.row->name);
        return;
      }
      for (const LinearRange& range : kernels.linears(group).ranges()) {
        const auto i = static_cast<size_t>(std::ranges::find(group.ops, i_op) - group.ops.begin());
        uses.add(range.tokens_min, range.tokens_max, range.of(i).name);
      }
      return;
    case FusionGroup::Kind::experts:
      for (const ExpertRange& range : kernels.experts(i_op).ranges())
        uses.add(range.tokens_min, range.tokens_max, range.row->name);
      return;
    case FusionGroup::Kind::attention: return add_attention(kernels.attention(group), uses);
    case FusionGroup::Kind::norm: return uses.add(1, kAnyTokens, "norm of rows");
    case FusionGroup::Kind::heads: return uses.add(1, kAnyTokens, "heads");
    case FusionGroup::Kind::gate: return uses.add(1, kAnyTokens, "gate of rows");
    case FusionGroup::Kind::op:
    case FusionGroup::Kind::quantise:
    case FusionGroup::Kind::borrowed: return uses.add(1, kAnyTokens, ops::kind_name(op));
  }
}

}  // namespace

std::vector<ops::KernelUse> kernel_uses(const ops::Plan& plan, const Schedule& schedule, const KernelPlan& kernels,
                                        int32_t i_op) {
  const auto found = std::ranges::find_if(
      schedule.groups, [&](const FusionGroup& group) { return std::ranges::find(group.ops, i_op) != group.ops.end(); });
  if (found == schedule.groups.end()) return {};
  if (found->kind == FusionGroup::Kind::borrowed) return {{1, 0, "reference", true}};
  Uses uses;
  const auto i_group = static_cast<int32_t>(found - schedule.groups.begin());
  for (const DecodeGroup& group : schedule.decode) {
    if (std::ranges::find(group.members, i_group) == group.members.end()) continue;
    if (const std::string_view name = name_for_one(group, kernels, schedule); !name.empty()) uses.add(1, 1, name);
  }
  add_group(plan, *found, kernels, i_op, uses);
  return uses.take();
}

}  // namespace assay::backend::cuda
