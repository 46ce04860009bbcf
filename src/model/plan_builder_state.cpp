// The part of plan_builder.h that writes ops with a state, and what goes with them.
#include <fmt/format.h>

#include <stdexcept>

#include "model/plan_builder.h"
#include "ops/linear/sparse_gate.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/match_magnitude.h"
#include "ops/rows/scale_columns.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::model {

int32_t PlanBuilder::add_state(const ops::StateLayer& layer) {
  plan_.states.push_back(layer);
  return static_cast<int32_t>(plan_.states.size() - 1);
}

ops::ValueId PlanBuilder::causal_conv(std::string_view name, std::string_view weight, std::string_view bias,
                                      ops::ValueId x, int64_t kernel) {
  const int64_t d = value(x).width;
  const ops::WeightId w = weights_.stacked_vector(full_name(weight), d, kernel);
  const ops::WeightId b = bias.empty() ? ops::kNone : weights_.optional_vector(full_name(bias), d);
  const ops::ValueId y = like(name, x);
  add_op(name, ops::CausalConv{x, w, b, add_state(ops::CausalConv::state_of(d, kernel)), y});
  return y;
}

ops::ValueId PlanBuilder::selective_scan(std::string_view name, std::string_view a, std::string_view d,
                                         const ScanRule& rule) {
  const int64_t head_dim = width(rule.x) / rule.n_heads, d_state = width(rule.b) / rule.n_groups;
  if (width(rule.dt) != rule.n_heads || width(rule.c) != width(rule.b)) {
    throw std::logic_error(fmt::format("{}: dt [{}], B [{}], C [{}] do not fit {} heads", full_name(name),
                                       width(rule.dt), width(rule.b), width(rule.c), rule.n_heads));
  }
  const ops::WeightId of_a = weights_.elements(full_name(a), rule.n_heads * rule.n_a),
                      of_d = weights_.elements(full_name(d), rule.n_heads);
  const ops::ValueId y = like(name, rule.x);
  add_op(name, ops::SelectiveScan{rule.x, rule.dt, rule.b, rule.c, of_a, of_d, rule.n_heads, rule.n_groups,
                                  add_state({rule.n_heads, head_dim * d_state}), y});
  return y;
}

ops::ValueId PlanBuilder::delta_rule(std::string_view name, const DeltaRuleInputs& in, int64_t n_heads,
                                     int64_t n_key_heads, bool tiled) {
  const int64_t d_k = width(in.k) / n_key_heads, d_v = width(in.v) / n_heads;
  check_same(name, in.q, in.k);
  const ops::ValueId y = like(name, in.v);
  add_op(name, ops::DeltaRule{in.q, in.k, in.v, in.decay, in.strength, n_heads, n_key_heads, tiled,
                              add_state({n_heads, d_k * d_v}), y});
  return y;
}

ops::ValueId PlanBuilder::l2_norm(std::string_view name, ops::ValueId x, int64_t d, float eps) {
  const ops::ValueId y = like(name, x);
  add_op(name, ops::L2Norm{x, eps, d, y});
  return y;
}

ops::ValueId PlanBuilder::scale_columns(std::string_view name, std::string_view weight, ops::ValueId x, int64_t n) {
  const ops::WeightId w = weights_.elements(full_name(weight), n);
  const ops::ValueId y = like(name, x);
  add_op(name, ops::ScaleColumns{x, w, y});
  return y;
}

ops::ValueId PlanBuilder::add_columns(std::string_view name, std::string_view bias, ops::ValueId x) {
  const ops::WeightId w = weights_.vector(full_name(bias), value(x).width);
  const ops::ValueId y = like(name, x);
  add_op(name, ops::AddColumns{x, w, y});
  return y;
}

ops::ValueId PlanBuilder::sparse_gate(std::string_view name, ops::ValueId x, double factor) {
  const ops::ValueId y = like(name, x);
  add_op(name, ops::SparseGate{x, factor, y});
  return y;
}

ops::ValueId PlanBuilder::match_magnitude(std::string_view name, ops::ValueId x, ops::ValueId of, double eps) {
  check_same(name, x, of);
  const ops::ValueId y = like(name, x);
  add_op(name, ops::MatchMagnitude{x, of, eps, y});
  return y;
}

ops::ValueId PlanBuilder::linear_block(std::string_view name, std::string_view weight, ops::ValueId x, int64_t n_blocks,
                                       int64_t i_block, int64_t width) {
  return linear(name, x, width,
                weights_.expert_matrix(full_name(weight) + ".weight", n_blocks, width, value(x).width, i_block));
}

}  // namespace assay::model
