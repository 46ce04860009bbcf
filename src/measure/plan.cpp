// See assay/plan.h.
#include "assay/plan.h"

#include <fmt/format.h>

#include "assay/error.h"
#include "backend/cuda/cuda.h"
#include "engine/context_state.h"
#include "engine/executors/on_card.h"
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

void check_tokens(int64_t n_tokens, int64_t n_past, int64_t n_ctx) {
  if (n_tokens >= 1 && n_past >= 0 && n_past + n_tokens <= n_ctx) return;
  throw Error(Errc::bad_request,
              fmt::format("a plan of {} tokens after {}: needs 1 or more within the {} positions of the context (-c)",
                          n_tokens, n_past, n_ctx));
}

// kernels_of: of an op by its place.
template <class KernelsOf>
std::vector<PlannedOp> planned_ops(const ops::Plan& plan, const ContextOptions& options, measure::RunShape shape,
                                   KernelsOf&& kernels_of) {
  const measure::WorkCounter counter(plan, options);
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
    made.work = counter.of_op(op, shape);
    for (const ops::KernelUse& use : kernels_of(i)) {
      made.kernels.push_back({use.tokens_min, use.tokens_max, use.name, use.borrowed});
    }
  }
  return planned;
}

}  // namespace

std::vector<PlannedOp> plan_of(Context& context, int64_t n_tokens, int64_t n_past) {
  check_tokens(n_tokens, n_past, context.n_ctx());
  const Context::State& state = context.state();
  return planned_ops(state.plan(), context.options(), {n_tokens, n_past},
                     [&](size_t i) { return state.executor->kernels_of(static_cast<int32_t>(i)); });
}

CardPlan plan_for_card(const std::shared_ptr<const Model>& model, const ContextOptions& options,
                       const std::string& card, int64_t n_tokens, int64_t n_past) {
  if (model == nullptr) throw Error(Errc::bad_request, "a plan needs a model, found none");
  engine::OnCard on = engine::on_card(*model, options, card);
  check_tokens(n_tokens, n_past, on.options.n_ctx);
  const auto kernels_of = [&](size_t i) -> const std::vector<ops::KernelUse>& { return on.kernels[i]; };
  std::vector<PlannedOp> planned = planned_ops(model->state().built.plan, on.options, {n_tokens, n_past}, kernels_of);
  return {std::move(on.options), std::move(planned)};
}

std::vector<std::string> card_names() { return backend::cuda::card_names(); }

}  // namespace assay
