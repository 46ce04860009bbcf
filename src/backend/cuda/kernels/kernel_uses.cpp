// See kernel_uses.h. Decode of one token has groups of its own; from two tokens on, and where no group has the op, the
// fusion group's rows count.
#include "backend/cuda/kernels/kernel_uses.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "ops/state/delta_rule.h"

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

// "a; from 5 segments: b", of rows that count the segments of a query.
std::string names_by_segments(const AttentionRows& rows) {
  std::string text;
  for (const auto& range : rows.ranges()) {
    if (!text.empty()) text += "; from " + std::to_string(range.tokens_min) + " segments of 256 on: ";
    text += range.row->name;
  }
  return text;
}

// A batch of one token; empty: as the fusion group has it.
std::string name_for_one(const DecodeGroup& group, const KernelPlan& kernels, const Schedule& schedule) {
  switch (group.kind) {
    case DecodeGroup::Kind::linears:
    case DecodeGroup::Kind::routes: return std::string(group.row->name);
    case DecodeGroup::Kind::attention:
      return names_by_segments(kernels.attention(schedule.groups[static_cast<size_t>(group.attention)]).one_token);
    case DecodeGroup::Kind::nothing: return "none: its readers do it";
    case DecodeGroup::Kind::alone: return {};
  }
  return {};
}

void add_attention(const AttentionChoice& choice, Uses& uses) {
  const std::string_view alone = choice.alone.at(1).name;
  uses.add(1, kSplitTokensMax, alone);
  uses.add(kSplitTokensMax + 1, kAnyTokens,
           std::string(choice.tiles->name) + "; tokens of a sequence each: " + std::string(alone));
}

// An op's one kernel, or those of delta_rule, whose rows count parts of sequences.
void add_alone(const ops::Op& op, const OpChoice& choice, Uses& uses) {
  if (!op.is<ops::DeltaRule>() || choice.ranges().size() == 1)
    return uses.add(1, kAnyTokens, choice.ranges().front().row->name);
  const auto &few = choice.ranges().front(), &others = choice.ranges().back();
  uses.add(1, 1, others.row->name);
  uses.add(2, kAnyTokens,
           std::string(others.row->name) + "; up to " + std::to_string(few.tokens_max) +
               " sequences of several tokens: " + std::string(few.row->name));
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
    case FusionGroup::Kind::norm:
    case FusionGroup::Kind::heads:
    case FusionGroup::Kind::gate:
      for (const auto& range : kernels.group(group).ranges())
        uses.add(range.tokens_min, range.tokens_max, range.row->name);
      return;
    case FusionGroup::Kind::op: return add_alone(op, kernels.alone(i_op), uses);
    case FusionGroup::Kind::quantise:
    case FusionGroup::Kind::borrowed: return;  // no op of a plan, or none of this device
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
    if (const std::string name = name_for_one(group, kernels, schedule); !name.empty()) uses.add(1, 1, name);
  }
  add_group(plan, *found, kernels, i_op, uses);
  return uses.take();
}

}  // namespace assay::backend::cuda
