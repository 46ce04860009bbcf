// See decode_products.h.
#include "backend/cuda/schedule/decode_products.h"

#include <algorithm>

#include "backend/cuda/decode/decode.h"
#include "backend/cuda/decode/fast_decode.h"
#include "backend/cuda/tiles/fast_blocks.h"
#include "ops/linear/linear.h"
#include "quant/format.h"

namespace assay::backend::cuda {

using lower::FusionGroup;

DecodeProducts::DecodeProducts(const ops::Plan& p, const ops::ExecutorOptions& o, const lower::Lowering& l)
    : plan(p), options(o), lowering(l), own_(l.twins.list.size(), true) {
  for (const FusionGroup& group : lowering.groups) {
    if (group.twin == ops::kNone || !lower::reads_twin(group.kind)) continue;
    if (group.kind == FusionGroup::Kind::experts || !serves(group)) own_[static_cast<size_t>(group.twin)] = false;
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
  return fast_serves(options, w.dtype, w.shape.cols());
}

bool DecodeProducts::serves(const FusionGroup& linears) const {
  const tensor::TensorView& first = matrix_of(linears.ops.front());
  if (is_fast(first)) {
    return std::ranges::all_of(linears.ops, [&](int32_t op) {
      const tensor::TensorView& w = matrix_of(op);
      return w.dtype == first.dtype && fast_decode_serves(w.dtype, w.shape.rows(), w.shape.cols());
    });
  }
  return std::ranges::all_of(linears.ops, [&](int32_t op) {
    const tensor::TensorView& w = matrix_of(op);
    const bool decoded = options.weights_as_f32 && quant::find_format(w.dtype)->activation != quant::Activation::f32;
    return !decoded && !is_fast(w) && decode_serves(w.dtype, w.shape.rows(), w.shape.cols(), kind_of(linears));
  });
}

bool DecodeProducts::is_served(const FusionGroup* group) const {
  if (group == nullptr || group->kind != FusionGroup::Kind::linears) return false;
  return group->twin == ops::kNone ? serves(*group) : is_made_by_readers(group->twin);
}

}  // namespace assay::backend::cuda
