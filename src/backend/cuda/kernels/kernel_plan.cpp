// See kernel_plan.h.
#include "backend/cuda/kernels/kernel_plan.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backend/cuda/linear/matrix.h"
#include "backend/cuda/runtime/usual.h"
#include "ops/attention/attention.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"

namespace assay::backend::cuda {
namespace {

using lower::FusionGroup;
using ops::kNone;
using Kind = FusionGroup::Kind;

template <class Record>
const Record& record_of(const ops::Plan& plan, int32_t op) {
  return plan.ops[static_cast<size_t>(op)].get<Record>();
}
const tensor::TensorView& view_of(const ops::Plan& plan, ops::WeightId id) {
  return plan.weights[static_cast<size_t>(id)].view;
}
LinearMatrix matrix_of(const ops::Plan& plan, const ops::ExecutorOptions& options, ops::WeightId id) {
  const tensor::TensorView& w = view_of(plan, id);
  return {w.dtype, w.shape.rows(), part_bytes(w.dtype, options.weights_as_f32).n > 1};
}
bool are_floats(const FusionGroup& group) { return group.kind == Kind::linears && group.twin == kNone; }

// The group's, if it multiplies fast matrices alone, in one type.
KernelPlan::Halves halves_read_by(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                  const FusionGroup& group) {
  if (!options.fast || !are_floats(group)) return {};
  const auto& first = record_of<ops::Linear>(plan, group.ops.front());
  const tensor::DType type = fast_type(view_of(plan, first.w).dtype);
  const bool all = std::ranges::all_of(group.ops, [&](int32_t op) {
    const tensor::TensorView& w = view_of(plan, record_of<ops::Linear>(plan, op).w);
    return is_multiplied_fast(options, w.dtype, w.shape.cols()) && fast_type(w.dtype) == type;
  });
  return all ? KernelPlan::Halves{first.x, group.ops.front(), type} : KernelPlan::Halves{};
}

// Whether the group ends with the norm or the gate that makes x, and can leave it rounded.
bool makes_rounded(const ops::Plan& plan, const FusionGroup& group, ops::ValueId x) {
  if (group.kind == Kind::norm) return record_of<ops::RmsNorm>(plan, group.norm).y == x;
  if (group.kind != Kind::op) return false;
  const auto* gate = plan.ops[static_cast<size_t>(group.ops.front())].as<ops::Gate>();
  return gate != nullptr && is_usual(plan, *gate) && gate->y == x;
}

}  // namespace

KernelPlan::KernelPlan(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::Lowering& lowering,
                       const Card& card)
    : card_(card), integers_(Kind::quantise, {}, card), alone_of_(plan.ops.size(), kNone), left_(plan.ops.size()),
      found_(plan.ops.size()), of_op_(plan.ops.size(), kNone) {
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (!has_op_kernel(plan.ops[i])) continue;
    alone_of_[i] = static_cast<int32_t>(alone_.size());
    alone_.emplace_back(plan, plan.ops[i], card_);
  }
  for (const ops::Weight& weight : plan.weights) {
    const bool is_cut = part_bytes(weight.view.dtype, options.weights_as_f32).n > 1;
    unpackers_.push_back(&find_unpack_row({weight.view.dtype, weight.view.shape.cols(), is_cut}));
  }
  const bool packs_rows = std::ranges::any_of(lowering.groups, [&](const FusionGroup& group) {
    return are_floats(group) &&
           are_tile_columns(view_of(plan, record_of<ops::Linear>(plan, group.ops.back()).w).shape.cols());
  });
  for (size_t i = 0; i < lowering.groups.size(); ++i) {
    const FusionGroup& group = lowering.groups[i];
    const Halves halves = halves_read_by(plan, options, group);
    if (i > 0 && halves.x != kNone && makes_rounded(plan, lowering.groups[i - 1], halves.x))
      left_[at(lowering.groups[i - 1].ops.front())] = found_[at(group.ops.front())] = halves;
    if (group.kind == Kind::norm || group.kind == Kind::heads || group.kind == Kind::gate) {
      of_op_[at(group.ops.front())] = static_cast<int32_t>(groups_.size());
      groups_.emplace_back(group.kind, group_shape(plan, options, lowering, group), card_);
    }
    if (group.kind == Kind::linears && group.twin != kNone) add_linears(plan, options, lowering, group);
    if (are_floats(group)) add_floats(plan, options, group, packs_rows);
    if (group.kind == Kind::experts) add_experts(plan, options, lowering, group);
    if (group.kind == Kind::attention) add_attention(plan, options, group);
  }
  link_experts(plan, lowering);
}

void KernelPlan::link_experts(const ops::Plan& plan, const lower::Lowering& lowering) {
  std::vector<int64_t> cuts;
  for (const ExpertChoice& choice : experts_) {
    for (const ExpertRange& range : choice.ranges()) cuts.push_back(range.tokens_min);
  }
  std::ranges::sort(cuts);
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (size_t i = 0; i < lowering.groups.size(); ++i) {
    const FusionGroup& group = lowering.groups[i];
    if (group.kind != Kind::experts) continue;
    const int32_t op = group.ops.front();
    std::vector<ExpertRange> ranges;
    for (const int64_t n : cuts) {
      ranges.push_back({n, lower::kAnyTokens, &experts(op).at(n), routes_are_settled(plan, lowering, op, n),
                        experts_made(plan, lowering, i, n)});
    }
    experts_[index_of(op)] = ExpertChoice(ranges);
  }
}

// Whether x is a gate's activation whose two products by the same routes run as vectors.
bool KernelPlan::routes_are_settled(const ops::Plan& plan, const lower::Lowering& lowering, int32_t op,
                                    int64_t n_tokens) const {
  const auto& r = record_of<ops::ExpertLinear>(plan, op);
  const int32_t before = lowering.links.producer(r.x);
  const auto* gate = before == kNone ? nullptr : plan.ops[at(before)].as<ops::Gate>();
  if (gate == nullptr) return false;
  return std::ranges::all_of(std::array{gate->gate, gate->up}, [&](ops::ValueId part) {
    const int32_t maker = lowering.links.producer(part);
    const auto* product = maker == kNone ? nullptr : plan.ops[at(maker)].as<ops::ExpertLinear>();
    return product != nullptr && product->routes == r.routes &&
           experts(maker).at(n_tokens).kernel == ExpertKernel::vectors;
  });
}

// What the last product in group tiles ahead of a group has left in the scratch memory. Products of other rows of the
// batch may run or not: behind them nothing counts as made.
ExpertsMade KernelPlan::experts_made(const ops::Plan& plan, const lower::Lowering& lowering, size_t i_group,
                                     int64_t n_tokens) const {
  const FusionGroup& group = lowering.groups[i_group];
  const auto& r = record_of<ops::ExpertLinear>(plan, group.ops.front());
  const ExpertRow& row = experts(group.ops.front()).at(n_tokens);
  const auto is_of_outputs = [&plan](const ops::ExpertLinear& product) {
    return plan.values[static_cast<size_t>(product.y)].domain.is_of_outputs();
  };
  while (i_group-- > 0) {
    const FusionGroup& other = lowering.groups[i_group];
    if (other.kind != Kind::experts || other.twin == kNone) continue;
    const auto& before = record_of<ops::ExpertLinear>(plan, other.ops.front());
    if (is_of_outputs(before) != is_of_outputs(r)) return {};
    const ExpertRow& of_before = experts(other.ops.front()).at(n_tokens);
    if (of_before.kernel != ExpertKernel::group_tiles) continue;
    const bool same = before.routes == r.routes && before.n_experts == r.n_experts && before.n_used == r.n_used &&
                      of_before.columns == row.columns;
    return {same, same && other.twin == group.twin && before.d_in == r.d_in};
  }
  return {};
}

void KernelPlan::add_linears(const ops::Plan& plan, const ops::ExecutorOptions& options,
                             const lower::Lowering& lowering, const FusionGroup& group) {
  std::vector<LinearMatrix> matrices;
  int64_t cols = 0;
  for (const int32_t op : group.ops) {
    const auto& linear = record_of<ops::Linear>(plan, op);
    matrices.push_back(matrix_of(plan, options, linear.w));
    cols = view_of(plan, linear.w).shape.cols();
  }
  const quant::Activation kind = lowering.twins.list[static_cast<size_t>(group.twin)].kind;
  of_op_[static_cast<size_t>(group.ops.front())] = static_cast<int32_t>(linears_.size());
  linears_.emplace_back(LinearProducts{matrices, kind, options.planes, cols}, card_);
}

void KernelPlan::add_floats(const ops::Plan& plan, const ops::ExecutorOptions& options, const FusionGroup& group,
                            bool packs_rows) {
  const auto product_of = [&](int32_t op) {
    const auto& linear = record_of<ops::Linear>(plan, op);
    FloatProduct product;
    product.w = matrix_of(plan, options, linear.w);
    product.cols = view_of(plan, linear.w).shape.cols();
    product.is_fast = is_multiplied_fast(options, product.w.dtype, product.cols);
    product.packs_rows = packs_rows;
    return product;
  };
  int64_t n_row_tiles = 0;
  for (const int32_t op : group.ops) {
    const FloatProduct product = product_of(op);
    if (!product.is_fast) n_row_tiles += (product.w.rows + kFloatTileRows - 1) / kFloatTileRows;
    n_row_tiles = std::min(n_row_tiles, std::max<int64_t>(kFloatsPackedMax / (kFloatTileRows * product.cols), 1));
  }
  for (const int32_t op : group.ops) {
    FloatProduct product = product_of(op);
    product.n_row_tiles = std::max<int64_t>(n_row_tiles, 1);
    of_op_[static_cast<size_t>(op)] = static_cast<int32_t>(floats_.size());
    floats_.emplace_back(product, card_);
  }
}

void KernelPlan::add_experts(const ops::Plan& plan, const ops::ExecutorOptions& options,
                             const lower::Lowering& lowering, const FusionGroup& group) {
  of_op_[static_cast<size_t>(group.ops.front())] = static_cast<int32_t>(experts_.size());
  experts_.emplace_back(expert_product(plan, options, lowering, group), card_);
}

void KernelPlan::add_attention(const ops::Plan& plan, const ops::ExecutorOptions& options, const FusionGroup& group) {
  const auto& attention = record_of<ops::Attention>(plan, group.ops.front());
  of_op_[static_cast<size_t>(group.ops.front())] = static_cast<int32_t>(attention_.size());
  attention_.emplace_back(attention_shape(plan, options, attention, group.twin != kNone), card_);
}

}  // namespace assay::backend::cuda
