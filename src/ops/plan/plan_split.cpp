// See plan_split.h.
#include "ops/plan/plan_split.h"

#include <algorithm>
#include <string>
#include <utility>

#include "assay/error.h"
#include "base/index.h"
#include "ops/plan/op_values.h"

namespace assay::ops {
namespace {

int32_t first_op_of(const Plan& plan, int32_t layer) {
  const auto first = std::find_if(plan.ops.begin(), plan.ops.end(), [&](const Op& op) { return op.layer >= layer; });
  return static_cast<int32_t>(first - plan.ops.begin());
}

// The one value that is written before this op and read from it on.
ValueId crossing(const Plan& plan, int32_t i_op) {
  std::vector<bool> written(plan.values.size(), false);
  for (int32_t i = 0; i < i_op; ++i) {
    const ValueId y = values_of(plan.ops[at(i)]).output;
    if (y != kNone) written[at(y)] = true;
  }
  std::vector<ValueId> found;
  for (size_t i = at(i_op); i < plan.ops.size(); ++i) {
    for (const ValueId x : values_of(plan.ops[i]).inputs) {
      if (written[at(x)] && std::find(found.begin(), found.end(), x) == found.end()) found.push_back(x);
    }
  }
  if (found.size() != 1 || plan.values[at(found.front())].domain != RowDomain::tokens) {
    throw Error(Errc::unsupported, "a model split before " + plan.ops[at(i_op)].name +
                                       ": needs one value of all tokens to hand over, found " +
                                       std::to_string(found.size()));
  }
  return found.front();
}

// Layers may read the cache of an earlier one; that must lie in the same part.
void check_caches(const Plan& part) {
  std::vector<bool> stored(part.cache_layers.size(), false);
  for (const Op& op : part.ops) {
    const int32_t layer = cache_layer_of(op);
    if (layer == kNone) continue;
    if (op.record.role() == Role::store) stored[at(layer)] = true;
    if (!stored[at(layer)]) {
      throw Error(Errc::unsupported, op.name + " reads the cache of a layer that a split gives to another device");
    }
  }
}

// Copies ops into a part and gives what they name the part's own numbers.
class Part final : FieldVisitor {
 public:
  explicit Part(const Plan& whole)
      : whole_(whole), values_(whole.values.size(), kNone), layers_(whole.cache_layers.size(), kNone),
        states_(whole.states.size(), kNone) {
    plan_.weights = whole.weights;
    plan_.ropes = whole.ropes;
    plan_.vocab_size = whole.vocab_size;
    plan_.d_model = whole.d_model;
    plan_.n_ctx_train = whole.n_ctx_train;
    plan_.n_ctx_max = whole.n_ctx_max;
    plan_.causal = whole.causal;
  }

  void take(Op op) {
    op.record.fields(*this);
    plan_.ops.push_back(std::move(op));
  }
  void set_input(ValueId id) { value(id), plan_.input = id; }
  void set_handed(ValueId id) { value(id), plan_.handed = id; }
  void set_logits(ValueId id) { value(id), plan_.logits = id; }
  Plan plan() && { return std::move(plan_); }

 private:
  // The part's own number of what has number i in the whole plan; the first use takes it over.
  template <class Thing>
  static void own_number(int32_t& i, std::vector<int32_t>& numbers, const std::vector<Thing>& of_whole,
                         std::vector<Thing>& of_part) {
    int32_t& own = numbers[at(i)];
    if (own == kNone) {
      own = static_cast<int32_t>(of_part.size());
      of_part.push_back(of_whole[at(i)]);
    }
    i = own;
  }
  void value(ValueId& id) { own_number(id, values_, whole_.values, plan_.values); }
  void reads(ValueId& id) override { value(id); }
  void writes(ValueId& id) override { value(id); }
  void cache_layer(int32_t& i) override { own_number(i, layers_, whole_.cache_layers, plan_.cache_layers); }
  void state(int32_t& i) override { own_number(i, states_, whole_.states, plan_.states); }

  const Plan& whole_;
  Plan plan_;
  std::vector<ValueId> values_;  // of the whole plan -> of the part
  std::vector<int32_t> layers_, states_;
};

}  // namespace

std::vector<PlanPart> split_plan(const Plan& whole, std::span<const int32_t> borders) {
  const int32_t n_layers = ops::n_layers(whole);
  std::vector<int32_t> first_ops = {0};
  int32_t before = 0;
  for (const int32_t layer : borders) {
    if (layer <= before || layer >= n_layers) {
      throw Error(Errc::bad_request, "a model of " + std::to_string(n_layers) +
                                         " layers cannot be split before layer " + std::to_string(layer) +
                                         " and before layer " + std::to_string(before));
    }
    before = layer;
    first_ops.push_back(first_op_of(whole, layer));
  }
  first_ops.push_back(static_cast<int32_t>(whole.ops.size()));
  std::vector<PlanPart> parts;
  for (size_t i = 0; i + 1 < first_ops.size(); ++i) {
    Part part(whole);
    const bool is_last = i + 2 == first_ops.size();
    if (i > 0) part.set_input(crossing(whole, first_ops[i]));
    for (int32_t op = first_ops[i]; op < first_ops[i + 1]; ++op) part.take(whole.ops[at(op)]);
    is_last ? part.set_logits(whole.logits) : part.set_handed(crossing(whole, first_ops[i + 1]));
    parts.push_back({std::move(part).plan(), first_ops[i]});
    check_caches(parts.back().plan);
  }
  return parts;
}

}  // namespace assay::ops
