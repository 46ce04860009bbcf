// See kernel_uses.h. Decode of one token has groups of its own; from two tokens on, and where no group has the op, the
// fusion group's rows count.
#include "backend/cuda/kernels/kernel_uses.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "ops/embed/embed.h"
#include "ops/embed/embed_position.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/state/delta_rule.h"
#include "quant/format.h"

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
  // What else runs behind those of at least so many tokens.
  void follow(int64_t tokens_min, std::string_view name) {
    std::vector<ops::KernelUse> uses;
    for (ops::KernelUse& use : uses_) {
      if (use.tokens_min < tokens_min) {
        uses.push_back(use);
        if (use.tokens_max != 0 && use.tokens_max < tokens_min) continue;
        uses.back().tokens_max = tokens_min - 1;
        use.tokens_min = tokens_min;
      }
      use.name += ", " + std::string(name);
      uses.push_back(use);
    }
    uses_ = std::move(uses);
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
    case DecodeGroup::Kind::expert_gate: return std::string(group.expert_row->gated);
    case DecodeGroup::Kind::expert_sum: return std::string(group.expert_row->summed);
    case DecodeGroup::Kind::nothing: return "none: its readers do it";
    case DecodeGroup::Kind::alone: return {};
  }
  return {};
}

// integers: of the kernel that makes those of rows; empty: nobody reads them.
void add_attention(const AttentionChoice& choice, std::string_view integers, Uses& uses) {
  const std::string behind = integers.empty() ? std::string() : ", " + std::string(integers);
  std::string alone(choice.alone.at(1).name);
  for (const auto& range : choice.merge.ranges()) {
    alone += range.tokens_min == 1 ? ", " : "; from " + std::to_string(range.tokens_min) + " segments of 256 on: ";
    alone += range.row->name;
    if (range.row->kernel != AttentionKernel::merge_integers) alone += behind;
  }
  uses.add(1, kSplitTokensMax, alone);
  uses.add(kSplitTokensMax + 1, kAnyTokens,
           std::string(choice.tiles->name) + behind + "; tokens of a sequence each: " + alone);
}

// The matrix whose rows an op makes floats of; kNone: none.
ops::WeightId unpacked_by(const ops::Op& op) {
  const auto* embed = op.as<ops::Embed>();
  const auto* position = op.as<ops::EmbedPosition>();
  return embed != nullptr ? embed->table : position != nullptr ? position->table : kNone;
}

// An op's one kernel, or those of delta_rule, whose rows count parts of sequences.
void add_alone(const ops::Op& op, const KernelPlan& kernels, const OpChoice& choice, Uses& uses) {
  if (const ops::WeightId table = unpacked_by(op); table != kNone)
    return uses.add(1, kAnyTokens, std::string(choice.at(1).name) + ", " + std::string(kernels.unpacker(table).name));
  if (!op.is<ops::DeltaRule>() || choice.ranges().size() == 1)
    return uses.add(1, kAnyTokens, choice.ranges().front().row->name);
  const auto &few = choice.ranges().front(), &others = choice.ranges().back();
  uses.add(1, 1, others.row->name);
  uses.add(2, kAnyTokens,
           std::string(others.row->name) + "; up to " + std::to_string(few.tokens_max) +
               " sequences of several tokens: " + std::string(few.row->name));
}

// A kernel's name, with that of the one that decodes the matrix for it where it reads floats and they are none.
std::string with_rows(std::string_view name, bool reads_floats, const ops::Plan& plan, const KernelPlan& kernels,
                      ops::WeightId id) {
  const tensor::DType dtype = plan.weights[static_cast<size_t>(id)].view.dtype;
  if (!reads_floats || quant::find_format(dtype)->activation == quant::Activation::f32) return std::string(name);
  return std::string(name) + ", " + std::string(kernels.unpacker(id).name);
}

void add_floats(const ops::Plan& plan, const KernelPlan& kernels, int32_t i_op, Uses& uses) {
  const ops::WeightId w = plan.ops[static_cast<size_t>(i_op)].get<ops::Linear>().w;
  for (const FloatRange& range : kernels.floats(i_op).ranges()) {
    const bool decodes = range.row->kernel != FloatKernel::fast_skinny_of_blocks;
    uses.add(range.tokens_min, range.tokens_max, with_rows(range.row->name, decodes, plan, kernels, w));
  }
}

// Where the integers of what an op makes have a kernel to themselves: from how many tokens on; 0: they have none.
int64_t tokens_of_integers(const Schedule& schedule, int32_t i_op) {
  for (size_t i = 0; i < schedule.groups.size(); ++i) {
    const FusionGroup& group = schedule.groups[i];
    if (group.kind != FusionGroup::Kind::quantise) continue;
    if (schedule.links.producer(schedule.twins.list[static_cast<size_t>(group.twin)].x) != i_op) continue;
    const bool is_made_by_readers = std::ranges::any_of(schedule.decode, [&](const DecodeGroup& decode) {
      return decode.kind == DecodeGroup::Kind::nothing && decode.members.front() == static_cast<int32_t>(i);
    });
    return is_made_by_readers ? 2 : 1;
  }
  return 0;
}

void add_group(const ops::Plan& plan, const FusionGroup& group, const KernelPlan& kernels, int32_t i_op, Uses& uses) {
  const ops::Op& op = plan.ops[static_cast<size_t>(i_op)];
  switch (group.kind) {
    case FusionGroup::Kind::linears:
      if (group.twin == kNone) {
        return add_floats(plan, kernels, i_op, uses);
      }
      for (const LinearRange& range : kernels.linears(group).ranges()) {
        const auto i = static_cast<size_t>(std::ranges::find(group.ops, i_op) - group.ops.begin());
        uses.add(range.tokens_min, range.tokens_max, range.of(i).name);
      }
      return;
    case FusionGroup::Kind::experts:
      for (const ExpertRange& range : kernels.experts(i_op).ranges()) {
        const bool decodes = range.row->kernel == ExpertKernel::floats;
        uses.add(range.tokens_min, range.tokens_max,
                 with_rows(range.row->name, decodes, plan, kernels, op.get<ops::ExpertLinear>().w));
      }
      return;
    case FusionGroup::Kind::attention:
      return add_attention(kernels.attention(group), group.twin == kNone ? "" : kernels.integers().at(1).name, uses);
    case FusionGroup::Kind::norm:
    case FusionGroup::Kind::heads:
    case FusionGroup::Kind::gate:
      for (const auto& range : kernels.group(group).ranges())
        uses.add(range.tokens_min, range.tokens_max, range.row->name);
      return;
    case FusionGroup::Kind::op: return add_alone(op, kernels, kernels.alone(i_op), uses);
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
  if (const int64_t n = tokens_of_integers(schedule, i_op); n > 0) uses.follow(n, kernels.integers().at(1).name);
  return uses.take();
}

}  // namespace assay::backend::cuda
