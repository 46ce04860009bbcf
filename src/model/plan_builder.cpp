// See plan_builder.h.
#include "model/plan_builder.h"
#include "ops/activation.h"
#include "ops/add.h"
#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/gate.h"
#include "ops/kv_store.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/select_outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace assay::model {

std::string PlanBuilder::full_name(std::string_view name) const {
  return layer_ < 0 ? std::string(name) : fmt::format("blk.{}.{}", layer_, name);
}

ops::ValueId PlanBuilder::add_value(std::string_view name, int64_t width, ops::RowDomain domain) {
  plan_.values.push_back({full_name(name), width, domain});
  return static_cast<ops::ValueId>(plan_.values.size() - 1);
}

template <class Record>
void PlanBuilder::add_op(std::string_view name, const Record& record) {
  plan_.ops.push_back({record, full_name(name), layer_});
}

// A mismatch is a bug of an architecture file, never of a model's file: that one's shapes were checked when its tensors were entered.
void PlanBuilder::check_same(std::string_view name, ops::ValueId a, ops::ValueId b) const {
  if (value(a).width != value(b).width || value(a).domain != value(b).domain) {
    throw std::logic_error(fmt::format("{}: {} [{}] and {} [{}] do not fit", full_name(name), value(a).name, value(a).width,
                                       value(b).name, value(b).width));
  }
}

ops::RopeId PlanBuilder::add_rope(ops::RopeSpec spec) {
  const auto found = std::find(plan_.ropes.begin(), plan_.ropes.end(), spec);
  const auto id = static_cast<ops::RopeId>(found - plan_.ropes.begin());
  if (found == plan_.ropes.end()) plan_.ropes.push_back(std::move(spec));
  return id;
}

void PlanBuilder::begin_layer(int32_t layer, const ops::CacheLayer& cache) {
  layer_ = layer;
  plan_.cache_layers.push_back(cache);
}

ops::ValueId PlanBuilder::embed(std::string_view name, int64_t vocab_size, int64_t d_model, double scale) {
  const ops::WeightId table = weights_.matrix(full_name(name) + ".weight", vocab_size, d_model);
  plan_.vocab_size = vocab_size;
  const ops::ValueId y = add_value(name, d_model, ops::RowDomain::tokens);
  add_op(name, ops::Embed{table, scale, y});
  return y;
}

ops::ValueId PlanBuilder::rms_norm(std::string_view name, ops::ValueId x, float eps) {
  return rms_norm_heads(name, x, value(x).width, eps);
}

ops::ValueId PlanBuilder::rms_norm_heads(std::string_view name, ops::ValueId x, int64_t head_dim, float eps) {
  const ops::WeightId w = weights_.vector(full_name(name) + ".weight", head_dim);
  const ops::ValueId y = add_value(name, value(x).width, value(x).domain);
  add_op(name, ops::RmsNorm{x, w, eps, head_dim, y});
  return y;
}

ops::ValueId PlanBuilder::linear(std::string_view name, ops::ValueId x, int64_t width, Bias bias) {
  const ops::WeightId w = weights_.matrix(full_name(name) + ".weight", width, value(x).width);
  const ops::WeightId b = bias == Bias::none ? ops::kNone : weights_.optional_vector(full_name(name) + ".bias", width);
  const ops::ValueId y = add_value(name, width, value(x).domain);
  add_op(name, ops::Linear{x, w, b, y});
  return y;
}

ops::ValueId PlanBuilder::linear(std::string_view name, ops::ValueId x, int64_t width, ops::WeightId w) {
  const ops::ValueId y = add_value(name, width, value(x).domain);
  add_op(name, ops::Linear{x, w, ops::kNone, y});
  return y;
}

ops::ValueId PlanBuilder::rope(std::string_view name, ops::ValueId x, ops::RopeId rope, int64_t head_dim) {
  const ops::ValueId y = add_value(name, value(x).width, value(x).domain);
  add_op(name, ops::Rope{x, rope, value(x).width / head_dim, head_dim, y});
  return y;
}

void PlanBuilder::kv_store(std::string_view name, ops::ValueId k, ops::ValueId v) {
  check_same(name, k, v);
  add_op(name, ops::KvStore{k, v, static_cast<int32_t>(plan_.cache_layers.size()) - 1});
}

ops::ValueId PlanBuilder::attention(std::string_view name, ops::ValueId q, int64_t n_heads, double scale) {
  const ops::CacheLayer& cache = plan_.cache_layers.back();
  const ops::ValueId y = add_value(name, value(q).width, value(q).domain);
  add_op(name, ops::Attention{q, static_cast<int32_t>(plan_.cache_layers.size()) - 1, n_heads, cache.n_kv_heads, cache.head_dim, scale,
                              cache.window, y});
  return y;
}

ops::ValueId PlanBuilder::add(std::string_view name, ops::ValueId a, ops::ValueId b) {
  check_same(name, a, b);
  const ops::ValueId y = add_value(name, value(a).width, value(a).domain);
  add_op(name, ops::Add{a, b, y});
  return y;
}

ops::ValueId PlanBuilder::gate(std::string_view name, ops::ValueId gate, ops::ValueId up, ops::ActivationFunction activation) {
  check_same(name, gate, up);
  const ops::ValueId y = add_value(name, value(gate).width, value(gate).domain);
  add_op(name, ops::Gate{gate, up, activation, y});
  return y;
}

ops::ValueId PlanBuilder::select_outputs(std::string_view name, ops::ValueId x) {
  const ops::ValueId y = add_value(name, value(x).width, ops::RowDomain::outputs);
  add_op(name, ops::SelectOutputs{x, y});
  return y;
}

ops::Plan PlanBuilder::finish(ops::ValueId logits, std::string_view architecture, int64_t d_model, int64_t n_ctx_train) {
  weights_.check_all_used(architecture);
  plan_.logits = logits;
  plan_.d_model = d_model;
  plan_.n_ctx_train = n_ctx_train;
  return std::move(plan_);
}

}  // namespace assay::model
