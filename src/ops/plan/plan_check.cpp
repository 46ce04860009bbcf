// Shapes and types of a Plan against what the kernels can do. A Plan comes from our own builder, but the widths and
// types in it from a file.
#include "ops/plan/plan_check.h"

#include <algorithm>
#include <string>

#include "assay/error.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/op_values.h"
#include "ops/plan/work.h"
#include "quant/format.h"
#include "tensor/dtype.h"

namespace assay::ops {
void CheckScope::refuse(const std::string& what) const {
  throw Error(Errc::unsupported, op_.name + ": " + what + " cannot be run");
}

void CheckScope::expect(int64_t found, int64_t needed, const char* what) const {
  if (found != needed)
    refuse(std::to_string(found) + " " + what + ", where " + std::to_string(needed) + " are needed,");
}

namespace {

std::string described(const RowDomain& domain) {
  const std::string of = domain.is_of_outputs() ? " for every output" : " for every token";
  return (domain.is_routed() ? std::to_string(domain.n_ranks) + " routed rows" : "a row") + of;
}

// Of an op that says nothing else, every value has the same rows.
void check_rows(const Plan& plan, const Op& op) {
  if (!op.record.rows_alike()) return;
  const CheckScope scope(plan, op);
  OpValues of = values_of(op);
  if (of.output != kNone) of.inputs.push_back(of.output);
  for (const ValueId id : of.inputs) scope.expect_rows(id, scope.domain(of.inputs[0]));
}

}  // namespace

void CheckScope::expect_rows(ValueId id, const RowDomain& needed) const {
  if (domain(id) == needed) return;
  refuse(plan_.values[static_cast<size_t>(id)].name + " with " + described(domain(id)) + " in place of " +
         described(needed));
}

void CheckScope::expect_format(WeightId id) const {
  const Weight& weight = plan_.weights[static_cast<size_t>(id)];
  if (quant::find_format(weight.view.dtype) == nullptr) {
    throw Error(Errc::unsupported,
                weight.name + ": type " + std::string(tensor::traits(weight.view.dtype).name) + " cannot be a weight");
  }
}

void CheckScope::expect_vector(WeightId id, int64_t n, const char* what) const {
  if (id == kNone) return;
  expect_format(id);
  expect(elements(id), n, what);
}

bool WorkScope::multiplies_integers(WeightId weight) const {
  const quant::Format* format = quant::find_format(plan_.weights[static_cast<size_t>(weight)].view.dtype);
  return !options_.weights_as_f32 && format != nullptr && format->activation != quant::Activation::f32;
}

void check_plan(const Plan& plan, const ExecutorOptions& options) {
  if (options.n_ctx < 1 || options.n_batch_max < 1 || options.n_outputs_max < 1 || options.n_sequences < 1 ||
      (options.planes != 1 && options.planes != 2) || options.n_ctx > INT32_MAX) {
    throw Error(Errc::bad_request, "a context of " + std::to_string(options.n_ctx) + " positions, " +
                                       std::to_string(options.n_sequences) + " sequences, batches of " +
                                       std::to_string(options.n_batch_max) + " tokens, " +
                                       std::to_string(options.n_outputs_max) + " outputs and " +
                                       std::to_string(options.planes) + " planes cannot be made");
  }
  if (plan.n_ctx_max > 0 && options.n_ctx > plan.n_ctx_max) {
    throw Error(Errc::bad_request, "a context of " + std::to_string(options.n_ctx) + " positions: this model has " +
                                       std::to_string(plan.n_ctx_max) + " and no more");
  }
  for (const Op& op : plan.ops) {
    check_rows(plan, op);
    op.record.check(CheckScope(plan, op));
  }
  if (plan.handed != kNone && plan.logits == kNone) return;  // a part that others follow
  const int64_t needed = plan.logits == kNone ? plan.d_model : plan.vocab_size;
  if (plan.output() == kNone || plan.output_width() != needed ||
      plan.values[static_cast<size_t>(plan.output())].domain != RowDomain::outputs) {
    throw Error(Errc::unsupported, "the plan names no outputs of " + std::to_string(needed) + " columns");
  }
}

std::vector<WeightId> small_weights_of(const Plan& plan) {
  struct Vectors final : FieldVisitor {
    std::vector<WeightId> found;
    void vector(WeightId& id) override {
      if (id != kNone) found.push_back(id);
    }
  } vectors;
  for (const Op& op : plan.ops) op.record.fields(vectors);
  std::vector<WeightId>& small = vectors.found;
  std::sort(small.begin(), small.end());
  small.erase(std::unique(small.begin(), small.end()), small.end());
  return small;
}

}  // namespace assay::ops
