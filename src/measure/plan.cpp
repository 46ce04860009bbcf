// See assay/plan.h.
#include "assay/plan.h"

#include <fmt/format.h>

#include "assay/error.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "measure/work.h"
#include "ops/plan/op_values.h"

namespace assay {
namespace {

// The weights that an op holds.
class WeightIds final : public ops::FieldVisitor {
 public:
  std::vector<ops::WeightId> ids;
  void matrix(ops::WeightId& id) override { add(id); }
  void vector(ops::WeightId& id) override { add(id); }

 private:
  void add(ops::WeightId id) {
    if (id != ops::kNone) ids.push_back(id);
  }
};

PlanWeight weight_of(const ops::Weight& weight) {
  PlanWeight made{weight.name, std::string(tensor::traits(weight.view.dtype).name), {}};
  for (int i = 0; i < weight.view.shape.rank; ++i) made.shape.push_back(weight.view.shape.dims[static_cast<size_t>(i)]);
  return made;
}

}  // namespace

std::vector<PlannedOp> plan_of(Context& context, int64_t n_tokens, int64_t n_past) {
  if (n_tokens < 1 || n_past < 0 || n_past + n_tokens > context.n_ctx()) {
    throw Error(Errc::bad_request,
                fmt::format("a plan of {} tokens after {}: needs 1 or more within the {} positions of the context (-c)",
                            n_tokens, n_past, context.n_ctx()));
  }
  const Context::State& state = context.state();
  const ops::Plan& plan = state.headless != nullptr ? *state.headless : context.model().state().built.plan;
  const measure::WorkCounter counter(plan, context.options());
  std::vector<PlannedOp> planned;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const ops::Op& op = plan.ops[i];
    PlannedOp& made = planned.emplace_back();
    made.name = op.name;
    made.kind = ops::kind_name(op);
    made.layer = op.layer;
    const ops::OpValues values = ops::values_of(op);
    for (const ops::ValueId id : values.inputs) made.reads.push_back(plan.values[static_cast<size_t>(id)].name);
    if (values.output != ops::kNone) {
      made.writes = plan.values[static_cast<size_t>(values.output)].name;
      made.width = plan.values[static_cast<size_t>(values.output)].width;
    }
    WeightIds weights;
    op.record.fields(weights);
    for (const ops::WeightId id : weights.ids) made.weights.push_back(weight_of(plan.weights[static_cast<size_t>(id)]));
    made.work = counter.of_op(op, {n_tokens, n_past});
    for (const ops::KernelUse& use : state.executor->kernels_of(static_cast<int32_t>(i))) {
      made.kernels.push_back({use.tokens_min, use.tokens_max, use.name, use.borrowed});
    }
  }
  return planned;
}

}  // namespace assay
