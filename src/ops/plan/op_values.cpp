// See op_values.h.
#include "ops/plan/op_values.h"

namespace assay::ops {
namespace {

class Collector final : public FieldVisitor {
 public:
  OpValues values;
  int32_t found_state = kNone, found_layer = kNone;
  void reads(ValueId& id) override { values.inputs.push_back(id); }
  void writes(ValueId& id) override { values.output = id; }
  void state(int32_t& id) override { found_state = id; }
  void cache_layer(int32_t& layer) override { found_layer = layer; }
};

}  // namespace

OpValues values_of(const Op& op) {
  Collector collector;
  op.record.fields(collector);
  return std::move(collector.values);
}

int32_t state_of(const Op& op) {
  Collector collector;
  op.record.fields(collector);
  return collector.found_state;
}

int32_t cache_layer_of(const Op& op) {
  Collector collector;
  op.record.fields(collector);
  return collector.found_layer;
}

std::vector<StateLayer> states_of(const Plan& plan, const std::function<bool(int32_t i_op)>& wants) {
  std::vector<StateLayer> layers(plan.states.size());
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const int32_t state = state_of(plan.ops[i]);
    if (state != kNone && wants(static_cast<int32_t>(i)))
      layers[static_cast<size_t>(state)] = plan.states[static_cast<size_t>(state)];
  }
  return layers;
}

int32_t n_layers(const Plan& plan) noexcept {
  int32_t n = 0;
  for (const Op& op : plan.ops) n = op.layer + 1 > n ? op.layer + 1 : n;
  return n;
}

ValueId announced_value(const Op& op) {
  const OpValues values = values_of(op);
  return passes_on(op) ? values.inputs[0] : values.output;
}

bool passes_on(const Op& op) noexcept { return op.record.role() == Role::store || op.record.role() == Role::select; }

const char* kind_name(const Op& op) noexcept { return op.record.kind(); }

}  // namespace assay::ops
