// Writes a Plan op by op: each call adds one op and the value it makes, named after the tensor it reads (or what it is), under
// "blk.<layer>." inside a layer. Widths are checked against the values read, so that an architecture file cannot wire two ends that do not fit.
#pragma once

#include <string>
#include <string_view>

#include "gguf/file.h"
#include "model/weights.h"
#include "ops/activation.h"
#include "ops/plan.h"

namespace assay::model {

enum class Bias { none, optional };

class PlanBuilder {
 public:
  explicit PlanBuilder(const gguf::File& file) : weights_(file, plan_) {}
  PlanBuilder(const PlanBuilder&) = delete;
  PlanBuilder& operator=(const PlanBuilder&) = delete;

  Weights& weights() noexcept { return weights_; }
  ops::RopeId add_rope(ops::RopeSpec spec);  // equal ones become one
  void begin_layer(int32_t layer, const ops::CacheLayer& cache);
  void end_layers() { layer_ = -1; }

  // name: the weight's name without "blk.<layer>." and ".weight".
  ops::ValueId embed(std::string_view name, int64_t vocab_size, int64_t d_model, double scale);
  ops::ValueId rms_norm(std::string_view name, ops::ValueId x, float eps);                      // over the whole width
  ops::ValueId rms_norm_heads(std::string_view name, ops::ValueId x, int64_t head_dim, float eps);  // over every head
  ops::ValueId linear(std::string_view name, ops::ValueId x, int64_t width, Bias bias);
  ops::ValueId linear(std::string_view name, ops::ValueId x, int64_t width, ops::WeightId w);   // with a weight that is entered already
  ops::ValueId rope(std::string_view name, ops::ValueId x, ops::RopeId rope, int64_t head_dim);
  void kv_store(std::string_view name, ops::ValueId k, ops::ValueId v);
  ops::ValueId attention(std::string_view name, ops::ValueId q, int64_t n_heads, double scale);  // over this layer's cache
  ops::ValueId add(std::string_view name, ops::ValueId a, ops::ValueId b);
  ops::ValueId gate(std::string_view name, ops::ValueId gate, ops::ValueId up, ops::ActivationFunction activation);
  ops::ValueId select_outputs(std::string_view name, ops::ValueId x);

  // Ends with the logits; checks that every tensor of the file was used.
  ops::Plan finish(ops::ValueId logits, std::string_view architecture, int64_t d_model, int64_t n_ctx_train);

 private:
  std::string full_name(std::string_view name) const;
  ops::ValueId add_value(std::string_view name, int64_t width, ops::RowDomain domain);
  template <class Record>
  void add_op(std::string_view name, const Record& record);
  const ops::Value& value(ops::ValueId id) const { return plan_.values[static_cast<size_t>(id)]; }
  void check_same(std::string_view name, ops::ValueId a, ops::ValueId b) const;

  ops::Plan plan_;
  Weights weights_;
  int32_t layer_ = -1;
};

}  // namespace assay::model
