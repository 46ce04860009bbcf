// See twins.h.
#include "lower/twins.h"

#include "base/index.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "quant/format.h"

namespace assay::lower {
namespace {

using ops::kNone;

// What a product reads: a row, to be multiplied by a matrix.
struct Product {
  ops::ValueId x = kNone;
  ops::WeightId w = kNone;
};

Product product_of(const ops::Op& op, bool experts_read) {
  if (const auto* linear = op.as<ops::Linear>()) return {linear->x, linear->w};
  const auto* experts = op.as<ops::ExpertLinear>();
  return experts != nullptr && experts_read ? Product{experts->x, experts->w} : Product{};
}

}  // namespace

int32_t Twins::find(ops::ValueId x, quant::Activation kind) const noexcept {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].x == x && list[i].kind == kind) return static_cast<int32_t>(i);
  }
  return kNone;
}

int32_t Twins::find_any(ops::ValueId x) const noexcept {
  const int32_t a256 = find(x, quant::Activation::a256);
  return a256 != kNone ? a256 : find(x, quant::Activation::a32);
}

Twins find_twins(const ops::Plan& plan, const ops::ExecutorOptions& options, bool experts_read,
                 const std::function<bool(const ops::Linear&)>& reads_floats) {
  Twins twins;
  twins.read_by_op.assign(plan.ops.size(), kNone);
  for (size_t i = 0; i < plan.ops.size() && !options.weights_as_f32; ++i) {
    const Product product = product_of(plan.ops[i], experts_read);
    if (product.x == kNone) continue;
    const auto* linear = plan.ops[i].as<ops::Linear>();
    if (linear != nullptr && reads_floats && reads_floats(*linear)) continue;
    const quant::Format* format = quant::find_format(plan.weights[at(product.w)].view.dtype);
    if (format == nullptr || format->activation == quant::Activation::f32) continue;
    int32_t twin = twins.find(product.x, format->activation);
    if (twin == kNone) {
      twin = static_cast<int32_t>(twins.list.size());
      twins.list.push_back({product.x, format->activation});
    }
    twins.read_by_op[i] = twin;
  }
  return twins;
}

}  // namespace assay::lower
