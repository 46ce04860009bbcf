// See plan_builder.h.
#include "model/plan_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "ops/attention/attention.h"
#include "ops/attention/choose_keys.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/attention/sparse_attention.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_position.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/rows/activate.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/rows/clamp.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_by_position.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/rows/xielu.h"

namespace assay::model {

std::string PlanBuilder::full_name(std::string_view name) const {
  return layer_ < 0 ? std::string(name) : fmt::format("blk.{}.{}", layer_, name);
}

ops::ValueId PlanBuilder::add_value(std::string_view name, int64_t width, ops::RowDomain domain) {
  plan_.values.push_back({full_name(name), width, domain});
  return static_cast<ops::ValueId>(plan_.values.size() - 1);
}

ops::ValueId PlanBuilder::like(std::string_view name, ops::ValueId x) {
  return add_value(name, value(x).width, value(x).domain);
}

// A mismatch is a bug of an architecture file, never of a model's file: that one's shapes were checked when its tensors
// were entered.
void PlanBuilder::check_same(std::string_view name, ops::ValueId a, ops::ValueId b) const {
  if (value(a).width != value(b).width || value(a).domain != value(b).domain) {
    throw std::logic_error(fmt::format("{}: {} [{}] and {} [{}] do not fit", full_name(name), value(a).name,
                                       value(a).width, value(b).name, value(b).width));
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
  cache_ = static_cast<int32_t>(plan_.cache_layers.size());
  plan_.cache_layers.push_back(cache);
}

void PlanBuilder::begin_layer_over(int32_t layer, int32_t cache) {
  layer_ = layer;
  cache_ = cache;
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

ops::ValueId PlanBuilder::rms_norm_by(std::string_view name, std::string_view weight, ops::ValueId x, float eps) {
  const ops::WeightId w = weights_.vector(full_name(weight), value(x).width);
  const ops::ValueId y = like(name, x);
  add_op(name, ops::RmsNorm{x, w, eps, value(x).width, y});
  return y;
}

ops::ValueId PlanBuilder::rms_norm_plain(std::string_view name, ops::ValueId x, int64_t d, float eps) {
  const ops::ValueId y = like(name, x);
  add_op(name, ops::RmsNorm{x, ops::kNone, eps, d, y});
  return y;
}

ops::ValueId PlanBuilder::layer_norm(std::string_view name, ops::ValueId x, float eps, NormWeights weights) {
  ops::WeightId w = ops::kNone, bias = ops::kNone;
  if (weights == NormWeights::required) {
    w = weights_.vector(full_name(name) + ".weight", value(x).width);
    bias = weights_.optional_vector(full_name(name) + ".bias", value(x).width);
  }
  const ops::ValueId y = like(name, x);
  add_op(name, ops::LayerNorm{x, w, bias, eps, value(x).width, y});
  return y;
}

ops::ValueId PlanBuilder::layer_norm_heads(std::string_view name, ops::ValueId x, int64_t head_dim, float eps) {
  const ops::WeightId w = weights_.stacked_vector(full_name(name) + ".weight", value(x).width / head_dim, head_dim);
  const ops::ValueId y = like(name, x);
  add_op(name, ops::LayerNorm{x, w, ops::kNone, eps, head_dim, y, true});
  return y;
}

ops::ValueId PlanBuilder::linear_rows(std::string_view name, std::string_view weight, ops::ValueId x, int64_t n_rows,
                                      int64_t begin, int64_t width) {
  const std::string of = full_name(weight);
  const ops::WeightId w = weights_.matrix_rows(of + ".weight", n_rows, value(x).width, begin, width);
  const ops::WeightId b =
      weights_.has(of + ".bias") ? weights_.vector_part(of + ".bias", n_rows, begin, width) : ops::kNone;
  const ops::ValueId y = add_value(name, width, value(x).domain);
  add_op(name, ops::Linear{x, w, b, y});
  return y;
}

ops::ValueId PlanBuilder::linear(std::string_view name, ops::ValueId x, int64_t width, Bias bias) {
  const ops::WeightId w = weights_.matrix(full_name(name) + ".weight", width, value(x).width);
  const ops::WeightId b = bias == Bias::none ? ops::kNone : weights_.optional_vector(full_name(name) + ".bias", width);
  const ops::ValueId y = add_value(name, width, value(x).domain);
  add_op(name, ops::Linear{x, w, b, y});
  return y;
}

ops::ValueId PlanBuilder::linear(std::string_view name, ops::ValueId x, int64_t width, ops::WeightId w,
                                 ops::WeightId bias) {
  const ops::ValueId y = add_value(name, width, value(x).domain);
  add_op(name, ops::Linear{x, w, bias, y});
  return y;
}

ops::ValueId PlanBuilder::rope(std::string_view name, ops::ValueId x, ops::RopeId rope, int64_t head_dim) {
  const ops::ValueId y = add_value(name, value(x).width, value(x).domain);
  add_op(name, ops::Rope{x, rope, value(x).width / head_dim, head_dim, y});
  return y;
}

void PlanBuilder::kv_store(std::string_view name, ops::ValueId k, ops::ValueId v) {
  const ops::CacheLayer& cache = plan_.cache_layers[static_cast<size_t>(cache_)];
  const int64_t v_width = v == ops::kNone ? 0 : value(v).width;
  if (value(k).width != cache.n_kv_heads * cache.head_dim || v_width != cache.n_kv_heads * cache.stored_v_dim()) {
    throw std::logic_error(
        fmt::format("{}: keys of {} and values of {} do not fit the cache", full_name(name), value(k).width, v_width));
  }
  add_op(name, ops::KvStore{k, v, cache_});
}

ops::ValueId PlanBuilder::attention(std::string_view name, ops::ValueId q, int64_t n_heads, const AttentionRule& rule) {
  const ops::CacheLayer& cache = plan_.cache_layers[static_cast<size_t>(cache_)];
  const ops::ValueId y = add_value(name, n_heads * cache.v_dim(), value(q).domain);
  ops::Attention op{q, cache_, n_heads, cache.n_kv_heads, cache.head_dim, rule.scale, cache.window, y};
  op.softcap = rule.softcap;
  if (rule.sinks) op.sinks = weights_.vector(full_name("attn_sinks.weight"), n_heads);
  op.chunk = rule.chunk;
  op.causal = rule.causal;
  plan_.causal = plan_.causal && rule.causal;
  add_op(name, op);
  return y;
}

int32_t PlanBuilder::index_store(std::string_view name, ops::ValueId k) {
  const auto cache = static_cast<int32_t>(plan_.cache_layers.size());
  plan_.cache_layers.push_back({1, value(k).width, 0, 0, true});
  add_op(name, ops::KvStore{k, ops::kNone, cache});
  return cache;
}

ops::ValueId PlanBuilder::choose_keys(std::string_view name, ops::ValueId q, ops::ValueId weights, int32_t cache,
                                      int64_t n_chosen) {
  const ops::ValueId y = add_value(name, n_chosen, value(q).domain);
  const int64_t n_heads = value(weights).width;
  add_op(name, ops::ChooseKeys{q, weights, cache, n_heads, value(q).width / n_heads, y});
  return y;
}

ops::ValueId PlanBuilder::choose_blocks(std::string_view name, ops::ValueId q, int32_t cache, const BlockRule& rule) {
  const ops::ValueId y = add_value(name, rule.n_block * rule.n_best, value(q).domain);
  add_op(name, ops::ChooseKeys{q, ops::kNone, cache, 1, value(q).width, y, rule.n_block, rule.n_local});
  return y;
}

ops::ValueId PlanBuilder::sparse_attention(std::string_view name, ops::ValueId q, ops::ValueId chosen, int64_t n_heads,
                                           double scale) {
  const ops::CacheLayer& cache = plan_.cache_layers[static_cast<size_t>(cache_)];
  const ops::ValueId y = add_value(name, n_heads * cache.v_dim(), value(q).domain);
  add_op(name, ops::SparseAttention{q, chosen, cache_, n_heads, cache.n_kv_heads, cache.head_dim, scale, y});
  return y;
}

ops::ValueId PlanBuilder::embed_position(std::string_view name, int64_t n_positions, int64_t d_model) {
  const ops::WeightId table = weights_.matrix(full_name(name) + ".weight", n_positions, d_model);
  const ops::ValueId y = add_value(name, d_model, ops::RowDomain::tokens);
  add_op(name, ops::EmbedPosition{table, y});
  plan_.n_ctx_max = n_positions;
  return y;
}

ops::ValueId PlanBuilder::embed_row(std::string_view name, int64_t n_rows, int64_t d_model, int64_t row) {
  const ops::WeightId table = weights_.matrix(full_name(name) + ".weight", n_rows, d_model);
  const ops::ValueId y = add_value(name, d_model, ops::RowDomain::tokens);
  add_op(name, ops::EmbedPosition{table, y, row});
  return y;
}

ops::ValueId PlanBuilder::activate(std::string_view name, ops::ValueId x, ops::ActivationFunction activation) {
  const ops::ValueId y = like(name, x);
  add_op(name, ops::Activate{x, activation, y});
  return y;
}

ops::ValueId PlanBuilder::xielu(std::string_view name, ops::ValueId x, double a, double b, double beta, double eps) {
  const ops::ValueId y = like(name, x);
  add_op(name, ops::Xielu{x, a, b, beta, eps, y});
  return y;
}

ops::ValueId PlanBuilder::scale(std::string_view name, ops::ValueId x, double factor) {
  if (factor == 1.0) return x;
  const ops::ValueId y = like(name, x);
  add_op(name, ops::Scale{x, factor, y});
  return y;
}

ops::ValueId PlanBuilder::scale_by_position(std::string_view name, ops::ValueId x, double beta, int64_t period,
                                            int64_t offset) {
  const ops::ValueId y = like(name, x);
  add_op(name, ops::ScaleByPosition{x, beta, period, offset, y});
  return y;
}

ops::ValueId PlanBuilder::softcap(std::string_view name, ops::ValueId x, double cap) {
  const ops::ValueId y = like(name, x);
  add_op(name, ops::Softcap{x, cap, y});
  return y;
}

ops::ValueId PlanBuilder::clamp(std::string_view name, ops::ValueId x, double limit) {
  const ops::ValueId y = like(name, x);
  add_op(name, ops::Clamp{x, limit, y});
  return y;
}

ops::ValueId PlanBuilder::add(std::string_view name, ops::ValueId a, ops::ValueId b) {
  check_same(name, a, b);
  const ops::ValueId y = add_value(name, value(a).width, value(a).domain);
  add_op(name, ops::Add{a, b, y});
  return y;
}

ops::ValueId PlanBuilder::gate(std::string_view name, ops::ValueId gate, ops::ValueId up,
                               ops::ActivationFunction activation) {
  if (value(gate).domain != value(up).domain || value(up).width % value(gate).width != 0) check_same(name, gate, up);
  const ops::ValueId y = like(name, up);
  add_op(name, ops::Gate{gate, up, activation, y});
  return y;
}

ops::ValueId PlanBuilder::route(std::string_view name, ops::ValueId logits, const RouteRule& rule) {
  ops::WeightId bias = ops::kNone;
  for (const char* of : {"exp_probs_b.bias", "exp_probs_b"}) {  // some converters leave the ending out
    if (has(of)) bias = weights_.vector(full_name(of), value(logits).width);
  }
  const ops::ValueId y = add_value(name, 2 * rule.n_used, value(logits).domain);
  ops::Route op{logits,     bias, rule.gating,   rule.n_used,        rule.normalise,
                rule.scale, y,    rule.n_groups, rule.n_groups_used, rule.group_by_best};
  op.least_sum = rule.least_sum, op.near = rule.near;
  if (!rule.expert_scales.empty())
    op.expert_scales = weights_.vector(full_name(rule.expert_scales), value(logits).width);
  add_op(name, op);
  return y;
}

ops::ValueId PlanBuilder::expert_linear(std::string_view name, std::string_view weight, ops::ValueId x,
                                        ops::ValueId routes, const ExpertShape& shape) {
  const std::string of = full_name(weight);
  const int64_t rows = shape.rows == 0 ? shape.width : shape.rows;
  const ops::WeightId w = weights_.experts(of + ".weight", shape.n_experts, rows, shape.d_in);
  const ops::WeightId bias =
      weights_.has(of + ".bias") ? weights_.stacked_vector(of + ".bias", shape.n_experts, rows) : ops::kNone;
  const ops::ValueId y = add_value(name, shape.width, value(routes).domain.routed(shape.n_used));
  add_op(name, ops::ExpertLinear{x, routes, w, bias, shape.n_experts, shape.n_used, shape.d_in, shape.width, y,
                                 shape.rows, shape.first_row});
  return y;
}

ops::ValueId PlanBuilder::expert_sum(std::string_view name, ops::ValueId x, ops::ValueId routes, bool weighted) {
  const int64_t n_used = value(routes).width / 2;
  const ops::ValueId y = add_value(name, value(x).width, value(routes).domain);
  add_op(name, ops::ExpertSum{x, routes, n_used, weighted, y});
  return y;
}

ops::ValueId PlanBuilder::expert_scale(std::string_view name, ops::ValueId x, ops::ValueId routes) {
  const int64_t n_used = value(routes).width / 2;
  const ops::ValueId y = add_value(name, value(x).width, value(routes).domain.routed(n_used));
  add_op(name, ops::ExpertScale{x, routes, n_used, y});
  return y;
}

ops::ValueId PlanBuilder::clamped_gate(std::string_view name, ops::ValueId gate, ops::ValueId up, double alpha,
                                       double limit) {
  check_same(name, gate, up);
  const ops::ValueId y = like(name, up);
  add_op(name, ops::ClampedGate{gate, up, alpha, limit, y});
  return y;
}

ops::ValueId PlanBuilder::slice(std::string_view name, ops::ValueId x, int64_t n_runs, int64_t first, int64_t width) {
  const ops::ValueId y = add_value(name, n_runs * width, value(x).domain);
  add_op(name, ops::Slice{x, n_runs, first, y});
  return y;
}

ops::ValueId PlanBuilder::join(std::string_view name, ops::ValueId a, ops::ValueId b, int64_t n_runs, int64_t width_b) {
  const ops::ValueId y = add_value(name, value(a).width + n_runs * width_b, value(a).domain);
  add_op(name, ops::Join{a, b, n_runs, y});
  return y;
}

ops::ValueId PlanBuilder::linear_heads(std::string_view name, ops::ValueId x, int64_t n_heads, int64_t width) {
  const int64_t d_in = value(x).width / n_heads;
  const ops::WeightId w = weights_.experts(full_name(name) + ".weight", n_heads, width, d_in);
  const ops::ValueId y = add_value(name, n_heads * width, value(x).domain);
  add_op(name, ops::ExpertLinear{x, ops::kNone, w, ops::kNone, n_heads, n_heads, d_in, width, y});
  return y;
}

ops::ValueId PlanBuilder::select_outputs(std::string_view name, ops::ValueId x) {
  const ops::ValueId y = add_value(name, value(x).width, ops::RowDomain::outputs);
  add_op(name, ops::SelectOutputs{x, y});
  return y;
}

int64_t PlanBuilder::dense(const std::string& name, int64_t n_rows, int64_t d_in) {
  dense_.push_back(plan_.weights[static_cast<size_t>(weights_.matrix(name, n_rows, d_in))].view);
  return n_rows;
}

ops::Plan PlanBuilder::finish(ops::ValueId logits, std::string_view architecture, int64_t d_model,
                              int64_t n_ctx_train) {
  weights_.check_all_used(architecture);
  plan_.logits = logits;
  plan_.d_model = d_model;
  plan_.n_ctx_train = n_ctx_train;
  return std::move(plan_);
}

}  // namespace assay::model
