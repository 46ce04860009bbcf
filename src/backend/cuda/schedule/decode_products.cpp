// See decode_products.h.
#include "backend/cuda/schedule/decode_products.h"

#include <algorithm>

#include "backend/cuda/kernels/expert_table.h"
#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/schedule/expert_blocks.h"
#include "ops/linear/linear.h"
#include "quant/format.h"

namespace assay::backend::cuda {

using lower::FusionGroup;

DecodeProducts::DecodeProducts(const ops::Plan& p, const ops::ExecutorOptions& o, const lower::Lowering& l,
                               const Card& c)
    : plan(p), options(o), lowering(l), card(c), own_(l.twins.list.size(), true) {
  const auto n_groups = static_cast<int32_t>(lowering.groups.size());
  for (int32_t i = 0; i < n_groups; ++i) expert_blocks_.push_back(find_expert_block(plan, options, lowering, i));
  for (int32_t i = 0; i < n_groups; ++i) {
    const FusionGroup& own = group(i);
    if (own.twin == ops::kNone || !lower::reads_twin(own.kind)) continue;
    const bool makes = own.kind == FusionGroup::Kind::experts ? expert_block(i - kExpertBlockDown) != nullptr
                                                              : row_for(own, false) != nullptr;
    if (!makes) own_[static_cast<size_t>(own.twin)] = false;
  }
}

quant::Activation DecodeProducts::kind_of(const FusionGroup& linears) const {
  if (linears.twin == ops::kNone) return quant::Activation::f32;
  return lowering.twins.list[static_cast<size_t>(linears.twin)].kind;
}

ops::ValueId DecodeProducts::row_of(const FusionGroup& linears) const {
  return record<ops::Linear>(linears.ops.front()).x;
}

const tensor::TensorView& DecodeProducts::matrix_of(int32_t linear) const {
  return plan.weights[static_cast<size_t>(record<ops::Linear>(linear).w)].view;
}

bool DecodeProducts::is_fast(const tensor::TensorView& w) const {
  return is_multiplied_fast(options, w.dtype, w.shape.cols());
}

const DecodeRow* DecodeProducts::row_for(const FusionGroup& linears, bool has_norm) const {
  const tensor::TensorView& first = matrix_of(linears.ops.front());
  const DecodeRow* row = nullptr;
  for (const int32_t op : linears.ops) {
    const tensor::TensorView& w = matrix_of(op);
    const bool fast = is_fast(w);
    if (!fast && options.weights_as_f32 && quant::find_format(w.dtype)->activation != quant::Activation::f32)
      return nullptr;  // decoded part by part
    const DecodeRow* own =
        find_decode_row({w.dtype, w.shape.rows(), w.shape.cols(), kind_of(linears), fast, has_norm}, card);
    if (own == nullptr || (row != nullptr && own != row) || (fast && w.dtype != first.dtype)) return nullptr;
    row = own;
  }
  return row;
}

bool DecodeProducts::are_vectors(const FusionGroup& experts) const {
  return ExpertChoice(expert_product(plan, options, lowering, experts), card).at(1).kernel == ExpertKernel::vectors;
}

const DecodeRow* DecodeProducts::router_row(int32_t linear) const {
  const tensor::TensorView& w = matrix_of(linear);
  const DecodeRow* row = find_decode_row(
      {.dtype = w.dtype, .rows = w.shape.rows(), .cols = w.shape.cols(), .is_fast = is_fast(w), .is_routed = true},
      card);
  return row != nullptr && row->kernel == DecodeKernel::router ? row : nullptr;
}

bool DecodeProducts::is_served(const FusionGroup* group, bool has_norm) const {
  if (group == nullptr || group->kind != FusionGroup::Kind::linears) return false;
  return group->twin == ops::kNone ? row_for(*group, has_norm) != nullptr : is_made_by_readers(group->twin);
}

}  // namespace assay::backend::cuda
