// See expert_blocks.h.
#include "backend/cuda/schedule/expert_blocks.h"

#include <algorithm>
#include <cstddef>

#include "backend/cuda/runtime/usual.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_sum.h"
#include "ops/rows/gate.h"

namespace assay::backend::cuda {
namespace {

using lower::FusionGroup;
using ops::kNone;
using Kind = FusionGroup::Kind;

// The record of a group that is one op of this kind; null: it is something else.
template <class Record>
const Record* only_op(const ops::Plan& plan, const FusionGroup& group) {
  return group.ops.size() == 1 ? plan.ops[static_cast<size_t>(group.ops.front())].as<Record>() : nullptr;
}

}  // namespace

bool are_by_one_route(const ops::Plan& plan, const FusionGroup& first, const FusionGroup* second) {
  if (second == nullptr || first.twin == kNone || first.twin != second->twin) return false;
  const auto *x = only_op<ops::ExpertLinear>(plan, first), *y = only_op<ops::ExpertLinear>(plan, *second);
  return x != nullptr && y != nullptr && x->x == y->x && x->routes == y->routes && x->n_used == y->n_used &&
         x->d_in == y->d_in && x->d_out == y->d_out;
}

const ExpertTokenRow* find_expert_block(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                        const lower::Lowering& lowering, int32_t first) {
  const auto begin = static_cast<size_t>(first);
  if (begin + kExpertBlockSum >= lowering.groups.size()) return nullptr;
  const FusionGroup* groups = &lowering.groups[begin];
  if (!are_by_one_route(plan, groups[0], &groups[1])) return nullptr;
  const auto *a = only_op<ops::ExpertLinear>(plan, groups[0]), *b = only_op<ops::ExpertLinear>(plan, groups[1]);
  const auto* gate = only_op<ops::Gate>(plan, groups[kExpertBlockGate]);
  const auto* down = only_op<ops::ExpertLinear>(plan, groups[kExpertBlockDown]);
  const auto* sum = only_op<ops::ExpertSum>(plan, groups[kExpertBlockSum]);
  if (gate == nullptr || down == nullptr || sum == nullptr) return nullptr;
  const bool is_chain = ((gate->gate == a->y && gate->up == b->y) || (gate->gate == b->y && gate->up == a->y)) &&
                        down->x == gate->y && down->routes == a->routes && down->n_used == a->n_used &&
                        sum->x == down->y && sum->n_used == down->n_used && is_usual(plan, *gate);
  const int32_t twin = groups[kExpertBlockDown].twin;
  if (!is_chain || twin == kNone || a->routes == kNone) return nullptr;
  const bool others_read_twin = std::ranges::any_of(lowering.groups, [&](const FusionGroup& group) {
    return &group != &groups[kExpertBlockDown] && lower::reads_twin(group.kind) && group.twin == twin;
  });
  const auto product_of = [&](int32_t i) { return expert_product(plan, options, lowering, groups[i]); };
  const ExpertProduct first_product = product_of(0), last = product_of(kExpertBlockDown);
  if (others_read_twin || first_product.kind != last.kind) return nullptr;
  return find_expert_token_row({first_product.w, product_of(1).w, last.w, last.kind, last.n_used, a->d_in, down->d_in});
}

}  // namespace assay::backend::cuda
