// Shapes and types of a Plan against what the kernels can do. A Plan comes from our own builder, but the widths and types in it from a file.
#include "ops/plan_check.h"

#include <algorithm>
#include <string>
#include <variant>

#include "assay/error.h"
#include "quant/format.h"
#include "tensor/dtype.h"

namespace assay::ops {
namespace {

class Checker {
 public:
  Checker(const Plan& plan, const Op& op) : plan_(plan), op_(op) {}

  void operator()(const Embed& r) const {
    format_of(r.table);
    expect(cols(r.table), width(r.y), "columns of the embedding table");
  }
  void operator()(const RmsNorm& r) const {
    format_of(r.w);
    expect(plan_.weights[static_cast<size_t>(r.w)].view.shape.elements(), r.d, "norm weights");
    if (r.d <= 0) refuse("runs of " + std::to_string(r.d) + " elements");
    expect(width(r.x) % r.d, 0, "elements left over after whole runs");
    expect(width(r.y), width(r.x), "columns");
  }
  void operator()(const Linear& r) const {
    format_of(r.w);
    expect(cols(r.w), width(r.x), "columns of the weights");
    expect(plan_.weights[static_cast<size_t>(r.w)].view.shape.rows(), width(r.y), "rows of the weights");
    if (r.bias == kNone) return;
    format_of(r.bias);
    expect(plan_.weights[static_cast<size_t>(r.bias)].view.shape.elements(), width(r.y), "elements of the bias");
  }
  void operator()(const Rope& r) const {
    expect(width(r.x), r.n_heads * r.head_dim, "columns");
    expect(width(r.y), width(r.x), "columns");
    const RopeSpec& spec = plan_.ropes[static_cast<size_t>(r.rope)];
    if (spec.dim < 0 || spec.dim > r.head_dim || spec.dim % 2 != 0) refuse("rotation of " + std::to_string(spec.dim) + " elements");
    expect(static_cast<int64_t>(spec.inverse_frequency.size()), spec.dim / 2, "frequencies");
  }
  void operator()(const KvStore& r) const {
    const CacheLayer& layer = plan_.cache_layers[static_cast<size_t>(r.layer)];
    expect(width(r.k), layer.n_kv_heads * layer.head_dim, "columns of the keys");
    expect(width(r.v), layer.n_kv_heads * layer.head_dim, "columns of the values");
    if (plan_.values[static_cast<size_t>(r.k)].outputs_only) refuse("keys of selected tokens alone");
  }
  void operator()(const Attention& r) const {
    const CacheLayer& layer = plan_.cache_layers[static_cast<size_t>(r.layer)];
    expect(layer.n_kv_heads, r.n_kv_heads, "KV heads");
    expect(layer.head_dim, r.head_dim, "elements of a head");
    if (plan_.values[static_cast<size_t>(r.q)].outputs_only) refuse("attention of selected tokens alone");
    expect(width(r.q), r.n_heads * r.head_dim, "columns");
    expect(width(r.y), width(r.q), "columns");
    if (r.n_kv_heads <= 0 || r.head_dim <= 0 || r.n_heads % r.n_kv_heads != 0) {
      refuse(std::to_string(r.n_heads) + " heads over " + std::to_string(r.n_kv_heads) + " KV heads");
    }
  }
  void operator()(const Add& r) const {
    expect(width(r.a), width(r.y), "columns");
    expect(width(r.b), width(r.y), "columns");
  }
  void operator()(const Gate& r) const {
    expect(width(r.gate), width(r.y), "columns");
    expect(width(r.up), width(r.y), "columns");
  }
  void operator()(const SelectOutputs& r) const { expect(width(r.x), width(r.y), "columns"); }
  void operator()(const Gather& r) const {
    if (r.column < 0 || width(r.x) < 1 || r.column > width(r.y) - width(r.x)) {
      refuse("columns " + std::to_string(r.column) + " to " + std::to_string(r.column + width(r.x)) + " of " + std::to_string(width(r.y)));
    }
  }

 private:
  int64_t width(ValueId value) const { return plan_.values[static_cast<size_t>(value)].width; }
  int64_t cols(WeightId weight) const { return plan_.weights[static_cast<size_t>(weight)].view.shape.cols(); }

  void format_of(WeightId id) const {
    const Weight& weight = plan_.weights[static_cast<size_t>(id)];
    if (quant::find_format(weight.view.dtype) == nullptr) {
      throw Error(Errc::unsupported, weight.name + ": type " + std::string(tensor::traits(weight.view.dtype).name) + " cannot be a weight");
    }
  }
  [[noreturn]] void refuse(const std::string& what) const { throw Error(Errc::unsupported, op_.name + ": " + what + " cannot be run"); }
  void expect(int64_t found, int64_t needed, const char* what) const {
    if (found != needed) refuse(std::to_string(found) + " " + what + ", where " + std::to_string(needed) + " are needed,");
  }

  const Plan& plan_;
  const Op& op_;
};

}  // namespace

void check_plan(const Plan& plan, const ExecutorOptions& options) {
  if (options.n_ctx < 1 || options.n_batch_max < 1 || options.n_outputs_max < 1 || options.n_sequences < 1 ||
      (options.planes != 1 && options.planes != 2) || options.n_ctx > INT32_MAX) {
    throw Error(Errc::bad_request, "a context of " + std::to_string(options.n_ctx) + " positions, " + std::to_string(options.n_sequences) +
                                       " sequences, batches of " + std::to_string(options.n_batch_max) + " tokens, " +
                                       std::to_string(options.n_outputs_max) + " outputs and " + std::to_string(options.planes) +
                                       " planes cannot be made");
  }
  for (const Op& op : plan.ops) std::visit(Checker(plan, op), op.record);
  if (plan.handed != kNone && plan.logits == kNone) return;  // a part that others follow
  if (plan.logits == kNone || plan.values[static_cast<size_t>(plan.logits)].width != plan.vocab_size ||
      !plan.values[static_cast<size_t>(plan.logits)].outputs_only) {
    throw Error(Errc::unsupported, "the plan names no logits of " + std::to_string(plan.vocab_size) + " columns");
  }
}

std::vector<WeightId> small_weights_of(const Plan& plan) {
  std::vector<WeightId> small;
  for (const Op& op : plan.ops) {
    if (const auto* norm = std::get_if<RmsNorm>(&op.record)) small.push_back(norm->w);
    if (const auto* linear = std::get_if<Linear>(&op.record); linear != nullptr && linear->bias != kNone) small.push_back(linear->bias);
  }
  std::sort(small.begin(), small.end());
  small.erase(std::unique(small.begin(), small.end()), small.end());
  return small;
}

}  // namespace assay::ops
