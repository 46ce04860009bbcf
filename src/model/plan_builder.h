// Writes a Plan op by op: each call adds one op and the value it makes, named after the tensor it reads (or what it
// is), under "blk.<layer>." inside a layer. Widths are checked against the values read, so that an architecture file
// cannot wire two ends that do not fit.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/file.h"
#include "model/weights.h"
#include "ops/linear/route.h"
#include "ops/plan/plan.h"
#include "ops/rows/activation.h"

namespace assay::model {

enum class Bias { none, optional };
enum class NormWeights { none, required };

// How a layer attends: ops/attention/attention.h.
struct AttentionRule {
  double scale = 1;
  double softcap = 0;
  bool sinks = false;  // the layer has attn_sinks.weight
  int64_t chunk = 0;
  bool causal = true;
};

struct RouteRule {
  ops::Gating gating = ops::Gating::softmax;
  int64_t n_used = 1;
  bool normalise = true;
  double scale = 1;
  int64_t n_groups = 1, n_groups_used = 1;
  bool group_by_best = false;
  double least_sum = 1e-20;        // beside which weights are divided by their sum
  double near = 0.02;              // of Gating::sparse_mixer
  std::string expert_scales = {};  // the tensor of this layer with a scale for each expert; empty: none
};
struct ExpertShape {
  int64_t n_experts = 0, n_used = 0, d_in = 0, width = 0;
  int64_t rows = 0, first_row = 0;  // of an expert in a fused tensor; rows 0: width
};

struct BlockRule {  // ops/attention/choose_keys.h
  int64_t n_block = 1, n_best = 1, n_local = 0;
};

// The scan of Mamba: ops/state/selective_scan.h. a, d: tensors of this layer; n_a elements of a head's A.
struct ScanRule {
  ops::ValueId x, dt, b, c;
  int64_t n_heads = 0, n_groups = 1, n_a = 1;
};
struct DeltaRuleInputs {  // ops/state/delta_rule.h
  ops::ValueId q, k, v, decay, strength;
};

class PlanBuilder {
 public:
  explicit PlanBuilder(const gguf::File& file) : weights_(file, plan_) {}
  PlanBuilder(const PlanBuilder&) = delete;
  PlanBuilder& operator=(const PlanBuilder&) = delete;

  Weights& weights() noexcept { return weights_; }
  ops::RopeId add_rope(ops::RopeSpec spec);  // equal ones become one
  void begin_layer(int32_t layer, const ops::CacheLayer& cache);
  void begin_layer_over(int32_t layer,
                        int32_t cache);  // one that keeps nothing and reads the cache of an earlier layer
  void begin_layer(int32_t layer) { begin_layer_over(layer, ops::kNone); }  // one without a cache
  int32_t cache() const noexcept { return cache_; }                         // of the layer that was begun
  int32_t layer() const noexcept { return layer_; }
  bool has(std::string_view name) const {
    return weights_.has(full_name(name));
  }  // a tensor of this layer, with its ending
  int64_t rows_of(std::string_view name) const {
    return weights_.rows_of(full_name(name));
  }  // of a tensor of this layer
  int64_t width(ops::ValueId id) const { return value(id).width; }
  void set_n_ctx_max(int64_t n) { plan_.n_ctx_max = n; }
  void set_hidden(ops::ValueId id) { plan_.hidden = id; }  // what embeddings are made of
  void end_layers() { layer_ = -1; }

  // name: the weight's name without "blk.<layer>." and ".weight".
  ops::ValueId embed(std::string_view name, int64_t vocab_size, int64_t d_model, double scale);
  ops::ValueId embed_position(std::string_view name, int64_t n_positions, int64_t d_model);
  ops::ValueId embed_row(std::string_view name, int64_t n_rows, int64_t d_model,
                         int64_t row);                                      // the same row of a table for all tokens
  ops::ValueId rms_norm(std::string_view name, ops::ValueId x, float eps);  // over the whole width
  ops::ValueId rms_norm_heads(std::string_view name, ops::ValueId x, int64_t head_dim, float eps);  // over every head
  ops::ValueId rms_norm_by(std::string_view name, std::string_view weight, ops::ValueId x,
                           float eps);  // weight: with its ending
  ops::ValueId rms_norm_plain(std::string_view name, ops::ValueId x, int64_t d,
                              float eps);  // without weights, over every d elements
  // Weight and bias where the file has them; layer_norm_heads: over every head, whose weights [n_heads, head_dim]
  // differ from head to head.
  ops::ValueId layer_norm(std::string_view name, ops::ValueId x, float eps, NormWeights weights);
  ops::ValueId layer_norm_heads(std::string_view name, ops::ValueId x, int64_t head_dim, float eps);
  ops::ValueId linear(std::string_view name, ops::ValueId x, int64_t width, Bias bias);
  // Rows [begin, begin + width) of the matrix `weight`, which has n_rows, and of its bias where there is one.
  ops::ValueId linear_rows(std::string_view name, std::string_view weight, ops::ValueId x, int64_t n_rows,
                           int64_t begin, int64_t width);
  ops::ValueId linear(std::string_view name, ops::ValueId x, int64_t width, ops::WeightId w,
                      ops::WeightId bias = ops::kNone);  // entered already
  ops::ValueId rope(std::string_view name, ops::ValueId x, ops::RopeId rope, int64_t head_dim);
  void kv_store(std::string_view name, ops::ValueId k, ops::ValueId v);  // v: kNone where values lie in the keys
  ops::ValueId attention(std::string_view name, ops::ValueId q, int64_t n_heads,
                         const AttentionRule& rule);  // over this layer's cache
  // Chosen keys (ops/attention/choose_keys.h, sparse_attention.h): index keys, in a layer of the cache of their own,
  // whose number is returned; the choice by them; attention over what was chosen of this layer's cache.
  int32_t index_store(std::string_view name, ops::ValueId k);
  ops::ValueId choose_keys(std::string_view name, ops::ValueId q, ops::ValueId weights, int32_t cache,
                           int64_t n_chosen);
  // The same by blocks of keys, of one head without weights: the n_best best ones, among which the n_local last ones
  // always are.
  ops::ValueId choose_blocks(std::string_view name, ops::ValueId q, int32_t cache, const BlockRule& rule);
  ops::ValueId sparse_attention(std::string_view name, ops::ValueId q, ops::ValueId chosen, int64_t n_heads,
                                double scale);
  ops::ValueId add(std::string_view name, ops::ValueId a, ops::ValueId b);
  ops::ValueId activate(std::string_view name, ops::ValueId x, ops::ActivationFunction activation);
  ops::ValueId xielu(std::string_view name, ops::ValueId x, double a, double b, double beta, double eps);
  ops::ValueId scale(std::string_view name, ops::ValueId x, double factor);  // x itself where the factor is 1
  ops::ValueId scale_by_position(std::string_view name, ops::ValueId x, double beta, int64_t period, int64_t offset);
  ops::ValueId softcap(std::string_view name, ops::ValueId x, double cap);
  ops::ValueId clamp(std::string_view name, ops::ValueId x, double limit);
  ops::ValueId gate(std::string_view name, ops::ValueId gate, ops::ValueId up, ops::ActivationFunction activation);
  ops::ValueId product(std::string_view name, ops::ValueId a, ops::ValueId b) {
    return gate(name, a, b, ops::ActivationFunction::identity);
  }
  // Mixtures of experts: the router's choice; products with the chosen experts' rows [first_row, + width) of `weight`
  // [n_experts, rows, d_in] and of its bias where there is one; the sum over the ranks; each rank's own input.
  ops::ValueId route(std::string_view name, ops::ValueId logits, const RouteRule& rule);
  ops::ValueId expert_linear(std::string_view name, std::string_view weight, ops::ValueId x, ops::ValueId routes,
                             const ExpertShape& shape);
  ops::ValueId expert_sum(std::string_view name, ops::ValueId x, ops::ValueId routes, bool weighted);
  ops::ValueId expert_scale(std::string_view name, ops::ValueId x, ops::ValueId routes);
  ops::ValueId clamped_gate(std::string_view name, ops::ValueId gate, ops::ValueId up, double alpha, double limit);
  // Columns [first, first + width) of each of n_runs runs; runs of a beside runs of b, or beside its one run for all:
  // width_b elements each.
  ops::ValueId slice(std::string_view name, ops::ValueId x, int64_t n_runs, int64_t first, int64_t width);
  ops::ValueId join(std::string_view name, ops::ValueId a, ops::ValueId b, int64_t n_runs, int64_t width_b);
  // Every head of x by a matrix of its own: the tensor [n_heads, width, width(x) / n_heads].
  ops::ValueId linear_heads(std::string_view name, ops::ValueId x, int64_t n_heads, int64_t width);
  // Ops with a state (ops/state/state.h), and what goes with them (plan_builder_state.cpp). Tensors are those of this
  // layer, by name with ending.
  ops::ValueId causal_conv(std::string_view name, std::string_view weight, std::string_view bias, ops::ValueId x,
                           int64_t kernel);  // bias: where there is one
  ops::ValueId selective_scan(std::string_view name, std::string_view a, std::string_view d, const ScanRule& rule);
  ops::ValueId delta_rule(std::string_view name, const DeltaRuleInputs& in, int64_t n_heads, int64_t n_key_heads,
                          bool tiled);
  ops::ValueId l2_norm(std::string_view name, ops::ValueId x, int64_t d, float eps);  // over every d elements
  ops::ValueId scale_columns(std::string_view name, std::string_view weight, ops::ValueId x,
                             int64_t n);  // n factors, each for a run of columns
  ops::ValueId add_columns(std::string_view name, std::string_view bias, ops::ValueId x);
  ops::ValueId sparse_gate(std::string_view name, ops::ValueId x, double factor);
  ops::ValueId match_magnitude(std::string_view name, ops::ValueId x, ops::ValueId like, double eps);
  // Row block i_block of a stacked tensor [n_blocks, width, width(x)], whose blocks are matrices.
  ops::ValueId linear_block(std::string_view name, std::string_view weight, ops::ValueId x, int64_t n_blocks,
                            int64_t i_block, int64_t width);
  ops::ValueId select_outputs(std::string_view name, ops::ValueId x);

  // A matrix that follows the pooling of embeddings, by its full name; its rows.
  int64_t dense(const std::string& name, int64_t n_rows, int64_t d_in);
  std::vector<tensor::TensorView> take_dense() { return std::move(dense_); }

  // Ends with the logits, kNone where there is no head; checks that every tensor of the file was used.
  ops::Plan finish(ops::ValueId logits, std::string_view architecture, int64_t d_model, int64_t n_ctx_train);

 private:
  std::string full_name(std::string_view name) const;
  int32_t add_state(const ops::StateLayer& layer);
  ops::ValueId like(std::string_view name, ops::ValueId x);  // as wide as x, of the same rows
  ops::ValueId add_value(std::string_view name, int64_t width, ops::RowDomain domain);
  template <class Record>
  void add_op(std::string_view name, const Record& record) {
    plan_.ops.push_back({record, full_name(name), layer_});
  }
  const ops::Value& value(ops::ValueId id) const { return plan_.values[static_cast<size_t>(id)]; }
  void check_same(std::string_view name, ops::ValueId a, ops::ValueId b) const;

  ops::Plan plan_;
  Weights weights_;
  std::vector<tensor::TensorView> dense_;
  int32_t layer_ = -1, cache_ = -1;
};

}  // namespace assay::model
