// See faulty_executor.h. One function per op record; each fault stands at the place where the bug lived.
#include "faulty/faulty_executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numbers>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "faulty/plain_attention.h"
#include "faulty/plain_cache.h"
#include "faulty/plain_choice.h"
#include "faulty/plain_experts.h"
#include "faulty/plain_formats.h"
#include "faulty/plain_linear.h"
#include "faulty/plain_states.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/gather.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/op_values.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/select_outputs.h"

namespace assay::faults {
namespace {

constexpr int64_t kAssumedVocabulary = 256;

std::vector<float> floats_of(const ops::Plan& plan, ops::WeightId id) {
  return id == ops::kNone ? std::vector<float>{}
                          : decode_tensor(plan.weights[static_cast<size_t>(id)].view, Fault::none);
}

// Where row i of a projection lies that was re-ordered for interleaved RoPE, pair by pair within each of its heads.
int64_t reordered(int64_t i, int64_t head_dim) {
  const int64_t head = i / head_dim, inside = i % head_dim;
  return head * head_dim + inside % 2 * (head_dim / 2) + inside / 2;
}

// The rows of a projection as another converter left them. The file's own order is that of reordered(.., head_dim).
void order_rows(PlainMatrix& w, int64_t head_dim, int64_t head_dim_taken) {
  const int64_t n_rows = w.rows(), cols = w.cols();
  std::vector<int64_t> row_of_source(static_cast<size_t>(n_rows));
  for (int64_t i = 0; i < n_rows; ++i) row_of_source[static_cast<size_t>(reordered(i, head_dim))] = i;
  const std::vector<float> right = w.decoded;
  for (int64_t i = 0; i < n_rows; ++i) {
    const int64_t source = head_dim_taken == 0 ? i : reordered(i, head_dim_taken);
    std::copy_n(right.begin() + row_of_source[static_cast<size_t>(source)] * cols, cols, w.decoded.begin() + i * cols);
  }
}

ops::Plan changed(const ops::Plan& plan, const EngineOptions& options) {
  ops::Plan own = plan;
  if (options.change_plan != nullptr) options.change_plan(own);
  return own;
}

class FaultyExecutor final : public ops::Executor {
 public:
  FaultyExecutor(const ops::Plan& plan, const EngineOptions& options, int64_t n_ctx, int n_sequences)
      : plan_(changed(plan, options)), options_(options),
        cache_(plan_.cache_layers, options.cache, n_ctx, n_sequences, options.fault),
        states_(plan_, n_sequences, options.fault), values_(plan_.values.size()) {
    for (const ops::Op& op : plan_.ops) {
      if (const auto* attention = op.as<ops::Attention>()) queries_.insert(attention->q);
      if (const auto* embed = op.as<ops::Embed>()) {
        table_ = load(embed->table, is(Fault::row_stride) ? Fault::none : options.fault);
      }
      if (const auto* linear = op.as<ops::Linear>()) matrices_.emplace(&op, load_linear(op, *linear));
      if (const auto* experts = op.as<ops::ExpertLinear>()) {
        PlainMatrix w = load(experts->w, options.fault);
        w.bias = floats_of(plan_, experts->bias);
        matrices_.emplace(&op, std::move(w));
      }
    }
    load_vectors();
    order_projections();
  }

  void run(const ops::Batch& batch) override;
  std::span<const float> logits(int64_t i_output) const override {
    const std::span<const float> all = values_[static_cast<size_t>(plan_.logits)];
    return all.subspan(static_cast<size_t>(i_output * plan_.vocab_size), static_cast<size_t>(plan_.vocab_size));
  }
  void read_logits(int64_t i_output, std::span<double> out) const override {
    const std::span<const float> row = logits(i_output);
    std::copy(row.begin(), row.end(), out.begin());
  }
  void truncate(int sequence, int64_t n_positions) override {
    cache_.truncate(sequence, n_positions);
    states_.truncate(sequence, n_positions);
  }
  int64_t n_positions(int sequence) const override { return cache_.n_positions(sequence); }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    cache_.visit(sequence, sink);
    states_.visit(sequence, sink);
  }
  size_t cache_bytes() const override { return cache_.bytes(); }
  size_t arena_bytes() const override {
    size_t sum = 0;
    for (const std::vector<float>& value : values_) sum += value.size() * sizeof(float);
    return sum;
  }

 private:
  void run_op(const ops::Op& op, const ops::Embed& r);
  void run_op(const ops::Op& op, const ops::RmsNorm& r);
  void run_op(const ops::Op& op, const ops::Linear& r);
  void run_op(const ops::Op& op, const ops::Rope& r);
  void run_op(const ops::Op& op, const ops::KvStore& r);
  void run_op(const ops::Op& op, const ops::Attention& r);
  void run_op(const ops::Op& op, const ops::Add& r);
  void run_op(const ops::Op& op, const ops::Gate& r);
  void run_op(const ops::Op& op, const ops::SelectOutputs& r);
  void run_op(const ops::Op& op, const ops::Route& r);
  void run_op(const ops::Op& op, const ops::ExpertLinear& r);
  void run_op(const ops::Op& op, const ops::ExpertSum& r);
  void run_formula(const ops::Op& op);
  void load_vectors();
  template <class Record>
  bool ran(const ops::Op& op) {
    const Record* record = op.as<Record>();
    if (record != nullptr) run_op(op, *record);
    return record != nullptr;
  }
  void run_any(const ops::Op& op) {
    if (!(ran<ops::Embed>(op) || ran<ops::RmsNorm>(op) || ran<ops::Linear>(op) || ran<ops::Rope>(op) ||
          ran<ops::KvStore>(op) || ran<ops::Attention>(op) || ran<ops::Add>(op) || ran<ops::Gate>(op) ||
          ran<ops::SelectOutputs>(op) || ran<ops::Route>(op) || ran<ops::ExpertLinear>(op) ||
          ran<ops::ExpertSum>(op))) {
      run_formula(op);
    }
  }

  bool is(Fault fault) const { return options_.fault == fault; }
  PlainMatrix load(ops::WeightId id, Fault fault) const {
    const tensor::TensorView& view = plan_.weights[static_cast<size_t>(id)].view;
    return {view, decode_tensor(view, fault), {}};
  }
  PlainMatrix load_linear(const ops::Op& op, const ops::Linear& r) const;
  void order_projections();
  void tear_first_layers_result();
  void observe(const ops::Op& op, ops::OpObserver& observer);
  double position_for_rotation(int64_t token, bool is_query, int32_t layer) const;
  std::vector<double> frequencies(const ops::RopeSpec& rope) const;

  int64_t width(ops::ValueId id) const { return plan_.values[static_cast<size_t>(id)].width; }
  const ops::RowDomain& domain(ops::ValueId id) const { return plan_.values[static_cast<size_t>(id)].domain; }
  int64_t n_rows(ops::ValueId id) const { return domain(id).n_rows(n_tokens_, static_cast<int64_t>(outputs_.size())); }
  int64_t token_of(ops::ValueId id, int64_t i) const { return domain(id).token_of(i, outputs_); }
  std::vector<float>& value(ops::ValueId id) { return values_[static_cast<size_t>(id)]; }
  std::vector<float>& result(ops::ValueId id) {
    value(id).assign(static_cast<size_t>(n_rows(id) * width(id)), 0.0f);
    return value(id);
  }
  std::span<const float> row(ops::ValueId id, int64_t i) {
    return std::span<const float>(value(id)).subspan(static_cast<size_t>(i * width(id)),
                                                     static_cast<size_t>(width(id)));
  }
  // All rows of the i-th token, or output.
  std::span<const float> rows(ops::ValueId id, int64_t i) {
    const auto n = static_cast<size_t>(width(id) * domain(id).n_ranks);
    return std::span<const float>(value(id)).subspan(static_cast<size_t>(i) * n, n);
  }
  int sequence_of(int64_t token) const {
    return batch_.sequences.empty() ? 0 : batch_.sequences[static_cast<size_t>(token)];
  }
  int64_t position_of(int64_t token) const { return batch_.positions[static_cast<size_t>(token)]; }

  struct Part {  // of the running batch: one sequence's tokens
    int64_t start = 0, n_tokens = 0;
  };

  const ops::Plan plan_;
  EngineOptions options_;
  PlainCache cache_;
  PlainStates states_;
  std::vector<std::vector<float>> vectors_;  // per weight: norms, biases and the like; empty for matrices
  PlainMatrix table_;
  std::map<const ops::Op*, PlainMatrix> matrices_;
  std::set<ops::ValueId> queries_;
  std::vector<std::vector<float>> values_;
  ops::Batch batch_;
  std::map<int, Part> parts_;  // by sequence
  std::vector<int64_t> outputs_;
  int64_t n_tokens_ = 0;
};

PlainMatrix FaultyExecutor::load_linear(const ops::Op& op, const ops::Linear& r) const {
  PlainMatrix w = load(r.w, options_.fault);
  const bool attention = op.name.find("attn_") != std::string::npos;
  if (!(is(Fault::bias_dropped) && attention)) w.bias = floats_of(plan_, r.bias);
  if (is(Fault::weights_in_out)) {
    const std::vector<float> flat = w.decoded;
    for (size_t i = 0; i < flat.size(); ++i) {
      const auto n_rows = static_cast<size_t>(w.rows()), cols = static_cast<size_t>(w.cols());
      w.decoded[i] = flat[i % cols * n_rows + i / cols];
    }
  }
  if (r.y != plan_.logits) return w;
  if (is(Fault::head_tied)) w = table_;
  if (is(Fault::head_random)) {
    uint32_t state = 1;
    for (float& x : w.decoded) {
      state = state * 1664525u + 1013904223u;
      x = (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 0.04f;
    }
  }
  return w;
}

void FaultyExecutor::order_projections() {
  if (!is(Fault::k_permuted_by_n_heads) && !is(Fault::qk_not_permuted)) return;
  int64_t n_heads = 0;
  for (const ops::Op& op : plan_.ops) {
    if (const auto* attention = op.as<ops::Attention>()) n_heads = attention->n_heads;
  }
  for (const ops::Op& op : plan_.ops) {
    const auto* rope = op.as<ops::Rope>();
    if (rope == nullptr) continue;
    for (auto& [linear_op, w] : matrices_) {
      if (linear_op->get<ops::Linear>().y != rope->x) continue;
      if (is(Fault::qk_not_permuted)) order_rows(w, rope->head_dim, 0);
      if (is(Fault::k_permuted_by_n_heads) && !queries_.contains(rope->y))
        order_rows(w, rope->head_dim, w.rows() / n_heads);
    }
  }
}

void FaultyExecutor::run(const ops::Batch& batch) {
  batch_ = batch;
  n_tokens_ = static_cast<int64_t>(batch.tokens.size());
  outputs_.clear();
  parts_.clear();
  for (int64_t t = 0; t < n_tokens_; ++t) {
    if (batch.outputs[static_cast<size_t>(t)] != 0) outputs_.push_back(t);
    const auto [part, is_new] = parts_.try_emplace(sequence_of(t), Part{position_of(t), 0});
    ++part->second.n_tokens;
  }
  states_.begin_run();
  bool torn = false;
  for (const ops::Op& op : plan_.ops) {
    if (is(Fault::layer_boundary) && op.layer == 1 && !std::exchange(torn, true)) tear_first_layers_result();
    run_any(op);
    if (batch.request.observer != nullptr) observe(op, *batch.request.observer);
  }
  ++*options_.n_runs;
}

void FaultyExecutor::observe(const ops::Op& op, ops::OpObserver& observer) {
  if (!observer.wants(op)) return;
  const ops::ValueId id = ops::announced_value(op);
  const std::vector<double> doubles(value(id).begin(), value(id).end());
  observer.on_op(op, n_rows(id), width(id), doubles);
}

// What the first layer leaves was announced as it should be; the second layer's device got the last quarter of no row.
void FaultyExecutor::tear_first_layers_result() {
  for (const ops::Op& op : plan_.ops) {
    const ops::ValueId y = ops::values_of(op).output;
    if (op.layer != 0 || y == ops::kNone || !op.is<ops::Add>()) continue;
    for (int64_t i = 0; i < n_rows(y); ++i) {
      for (int64_t j = width(y) * 3 / 4; j < width(y); ++j) value(y)[static_cast<size_t>(i * width(y) + j)] = 0;
    }
  }
}

void FaultyExecutor::run_op(const ops::Op&, const ops::Embed& r) {
  std::vector<float>& y = result(r.y);
  const int64_t d = table_.cols(), n_vocab = table_.rows();
  for (int64_t t = 0; t < n_tokens_; ++t) {
    int64_t id = batch_.tokens[static_cast<size_t>(t)];
    if (is(Fault::vocab_assumed)) id = std::min(id, kAssumedVocabulary - 1);
    for (int64_t j = 0; j < d; ++j) {
      const int64_t at = is(Fault::embed_column) ? j * n_vocab + id : id * d + j;
      y[static_cast<size_t>(t * d + j)] = table_.decoded[static_cast<size_t>(at)] * static_cast<float>(r.scale);
    }
  }
}

void FaultyExecutor::run_op(const ops::Op&, const ops::RmsNorm& r) {
  std::vector<float>& y = result(r.y);
  const std::vector<float>& x = value(r.x);
  const std::vector<float> w =
      r.w == ops::kNone ? std::vector<float>(static_cast<size_t>(r.d), 1.0f) : floats_of(plan_, r.w);
  const double eps = is(Fault::eps_1e_6) ? 1e-6 : static_cast<double>(r.eps);
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(r.d)) {
    const std::span<const float> row(x.data() + begin, static_cast<size_t>(r.d));
    double mean = 0, squares = 0;
    if (is(Fault::layer_norm) || is(Fault::gpt_graph)) {
      for (const float e : row) mean += static_cast<double>(e) / static_cast<double>(r.d);
    }
    for (const float e : row) squares += (e - mean) * (e - mean);
    const float scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(r.d) + eps));
    for (size_t j = 0; j < row.size(); ++j) y[begin + j] = (row[j] - static_cast<float>(mean)) * scale * w[j];
  }
}

void FaultyExecutor::run_op(const ops::Op& op, const ops::Linear& r) {
  std::vector<float>& y = result(r.y);
  const PlainMatrix& w = matrices_.at(&op);
  const bool head = r.y == plan_.logits;
  std::vector<float> x = value(r.x);
  if (head && is(Fault::racy_input) && *options_.n_runs % 3 == 2) std::fill(x.end() - width(r.x) / 2, x.end(), 0.0f);
  linear_plain(w, x, n_rows(r.x), options_.activation_bits, options_.fault, y);
  if (!head) return;
  if (is(Fault::logits_softcap)) {
    for (float& logit : y) logit = 30 * std::tanh(logit / 30);
  }
  if (is(Fault::head_tail_zero)) {
    for (size_t i = 0; i < y.size(); ++i) {
      if (static_cast<int64_t>(i) % w.rows() >= w.rows() / 64 * 64) y[i] = 0;
    }
  }
}

double FaultyExecutor::position_for_rotation(int64_t token, bool is_query, int32_t layer) const {
  const int64_t position = position_of(token);
  const Part& part = parts_.at(sequence_of(token));
  const int64_t inside = position - part.start;
  if (is(Fault::rope_start_zero) || (is(Fault::rope_q_start_zero) && is_query)) return static_cast<double>(inside);
  if (is(Fault::rope_k_plus_one) && !is_query) return static_cast<double>(position + 1);
  if (is(Fault::rope_batch_offset) && is_query && parts_.size() > 1)
    return static_cast<double>(position + part.n_tokens);
  if (is(Fault::rope_retained_rows)) {
    const int64_t window = plan_.cache_layers[static_cast<size_t>(layer)].window;
    return static_cast<double>(inside + (window > 0 ? std::min(part.start, window) : part.start));
  }
  return static_cast<double>(position);
}

std::vector<double> FaultyExecutor::frequencies(const ops::RopeSpec& rope) const {
  std::vector<double> found = rope.inverse_frequency;
  const double d = static_cast<double>(rope.dim);
  // The first pair that turns slower than once a position keeps its own frequency under every scaling, so it tells
  // theta.
  const double theta = found.size() > 1 ? std::pow(found[1], -d / 2) : 1e4;
  for (size_t i = 0; i < found.size(); ++i) {
    if (is(Fault::rope_theta_1e4)) found[i] *= std::pow(1e4 / theta, -2.0 * static_cast<double>(i) / d);
    if (is(Fault::rope_scaling_ignored)) found[i] = std::pow(theta, -2.0 * static_cast<double>(i) / d);
  }
  if (is(Fault::rope_half_dims)) found.resize(found.size() / 2);
  return found;
}

void FaultyExecutor::run_op(const ops::Op& op, const ops::Rope& r) {
  std::vector<float>& y = result(r.y);
  y = value(r.x);  // what is not rotated passes through
  if (is(Fault::gpt_graph)) return;
  const std::vector<float>& x = value(r.x);
  const ops::RopeSpec& rope = plan_.ropes[static_cast<size_t>(r.rope)];
  const bool interleaved = rope.interleaved != is(Fault::rope_pairing);
  const double magnitude = is(Fault::rope_magnitude_ignored) ? 1.0 : rope.magnitude;
  const std::vector<double> frequency = frequencies(rope);
  const auto half = static_cast<int64_t>(frequency.size());
  for (int64_t i = 0; i < n_rows(r.x); ++i) {
    const double position = position_for_rotation(token_of(r.x, i), queries_.contains(r.y), op.layer);
    for (int64_t pair = 0; pair < half; ++pair) {
      const double angle = position * frequency[static_cast<size_t>(pair)];
      const float cos = static_cast<float>(std::cos(angle) * magnitude),
                  sin = static_cast<float>(std::sin(angle) * magnitude);
      for (int64_t head = 0; head < r.n_heads; ++head) {
        const int64_t begin = i * width(r.x) + head * r.head_dim;
        const auto a = static_cast<size_t>(begin + (interleaved ? 2 * pair : pair));
        const auto b = static_cast<size_t>(begin + (interleaved ? 2 * pair + 1 : pair + half));
        y[a] = x[a] * cos - x[b] * sin;
        y[b] = x[a] * sin + x[b] * cos;
      }
    }
  }
}

void FaultyExecutor::run_op(const ops::Op&, const ops::KvStore& r) {
  for (int64_t t = 0; t < n_tokens_; ++t) {
    const float *k = value(r.k).data() + t * width(r.k),
                *v = r.v == ops::kNone ? nullptr : value(r.v).data() + t * width(r.v);
    cache_.store(sequence_of(t), r.layer, position_of(t), k, v);
  }
}

void FaultyExecutor::run_op(const ops::Op&, const ops::Attention& r) {
  std::vector<float>& y = result(r.y);
  const std::vector<float> sinks = floats_of(plan_, r.sinks);
  const int64_t v_dim = plan_.cache_layers[static_cast<size_t>(r.layer)].v_dim();
  for (int64_t i = 0; i < n_rows(r.q); ++i) {
    const int64_t token = token_of(r.q, i);
    const Part& part = parts_.at(sequence_of(token));
    const PlainAttention query{r,          cache_,       options_.fault,     plan_.d_model,
                               v_dim,      sinks,        sequence_of(token), position_of(token),
                               part.start, part.n_tokens};
    for (int64_t head = 0; head < r.n_heads; ++head) {
      query.run(value(r.q).data() + i * width(r.q) + head * r.head_dim, head, y.data() + i * width(r.y) + head * v_dim);
    }
  }
}

void FaultyExecutor::run_op(const ops::Op&, const ops::Add& r) {
  std::vector<float>& y = result(r.y);
  std::transform(value(r.a).begin(), value(r.a).end(), value(r.b).begin(), y.begin(),
                 [](float a, float b) { return a + b; });
}

void FaultyExecutor::run_op(const ops::Op& op, const ops::Gate& r) {
  const bool own = r.activation == ops::ActivationFunction::silu || r.activation == ops::ActivationFunction::gelu_tanh;
  if (!own || width(r.gate) != width(r.up)) return run_formula(op);
  std::vector<float>& y = result(r.y);
  const std::vector<float>& gate = value(is(Fault::gate_up_swapped) ? r.up : r.gate);
  const std::vector<float>& up = value(is(Fault::gate_up_swapped) ? r.gate : r.up);
  const bool silu = r.activation == ops::ActivationFunction::silu && !is(Fault::gelu_for_silu) && !is(Fault::gpt_graph);
  for (size_t i = 0; i < y.size(); ++i) {
    const double x = gate[i];
    const double activated =
        silu ? x / (1 + std::exp(-x))
             : 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    y[i] = static_cast<float>(activated) * up[i];
  }
}

void FaultyExecutor::run_op(const ops::Op&, const ops::SelectOutputs& r) {
  std::vector<float>& y = result(r.y);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    std::copy_n(value(r.x).begin() + outputs_[i] * width(r.x), width(r.x),
                y.begin() + static_cast<int64_t>(i) * width(r.x));
  }
}

void FaultyExecutor::run_op(const ops::Op&, const ops::Route& r) {
  std::vector<float>& y = result(r.y);
  const std::vector<float> bias = floats_of(plan_, r.bias), scales = floats_of(plan_, r.expert_scales);
  for (int64_t i = 0; i < n_rows(r.y); ++i)
    route_plain(r, row(r.logits, i), bias, scales, options_.fault, y.data() + i * width(r.y));
}

void FaultyExecutor::run_op(const ops::Op& op, const ops::ExpertLinear& r) {
  std::vector<float>& y = result(r.y);
  const PlainMatrix& w = matrices_.at(&op);
  for (int64_t i = 0; i < r.n_pairs(n_rows(r.y)) / r.n_used; ++i) {
    const std::span<const float> routes = r.routes == ops::kNone ? std::span<const float>() : row(r.routes, i);
    expert_linear_plain(r, w.decoded, w.bias, rows(r.x, i), routes, y.data() + i * r.n_used * r.d_out);
  }
}

void FaultyExecutor::run_op(const ops::Op&, const ops::ExpertSum& r) {
  std::vector<float>& y = result(r.y);
  for (int64_t i = 0; i < n_rows(r.y); ++i) {
    expert_sum_plain(r, rows(r.x, i), row(r.routes, i), options_.fault,
                     std::span(y).subspan(static_cast<size_t>(i * width(r.y)), static_cast<size_t>(width(r.y))));
  }
}

// What ops read as vectors, whatever the file keeps them as.
void FaultyExecutor::load_vectors() {
  struct Vectors final : ops::FieldVisitor {
    std::set<ops::WeightId> found;
    void vector(ops::WeightId& id) override {
      if (id != ops::kNone) found.insert(id);
    }
  } vectors;
  for (const ops::Op& op : plan_.ops) op.record.fields(vectors);
  vectors_.resize(plan_.weights.size());
  for (const ops::WeightId id : vectors.found) vectors_[static_cast<size_t>(id)] = floats_of(plan_, id);
}

// An op of a few families, by its own formula in float64.
void FaultyExecutor::run_formula(const ops::Op& op) {
  const ops::OpValues ids = ops::values_of(op);
  std::vector<std::vector<double>> wide(plan_.values.size());
  for (const ops::ValueId id : ids.inputs) wide[static_cast<size_t>(id)].assign(value(id).begin(), value(id).end());
  wide[static_cast<size_t>(ids.output)].resize(result(ids.output).size());
  std::vector<double*> rows_of(plan_.values.size(), nullptr);
  for (size_t i = 0; i < wide.size(); ++i) rows_of[i] = wide[i].data();
  std::vector<const float*> small(plan_.weights.size(), nullptr);
  for (size_t i = 0; i < small.size(); ++i) small[i] = vectors_[i].empty() ? nullptr : vectors_[i].data();
  const ops::HostRows<double> rows{&plan_, rows_of, small, {}, batch_.tokens, batch_.positions, outputs_};
  if (op.record.role() == ops::Role::state) {
    for (int64_t t = 0; t < n_tokens_; ++t) states_.run(op, rows, t, sequence_of(t), position_of(t));
  } else if (op.record.role() == ops::Role::row) {
    op.record.run(rows, 0, n_rows(ids.output));
  } else if (op.record.role() == ops::Role::cached) {
    for (int64_t t = 0; t < n_tokens_; ++t) run_cached_plain(op, rows, cache_, sequence_of(t), t, options_.fault);
  } else {
    throw std::logic_error(op.name + ": this engine has no " + op.record.kind());
  }
  const std::vector<double>& y = wide[static_cast<size_t>(ids.output)];
  std::transform(y.begin(), y.end(), value(ids.output).begin(), [](double x) { return static_cast<float>(x); });
}

}  // namespace

trace::Declared declared_of(const EngineOptions& options) {
  trace::Declared declared;
  declared.activation_bits = options.activation_bits;
  declared.cache_k = declared.cache_v = options.cache;
  return declared;
}

std::unique_ptr<ops::Executor> make_faulty_executor(const ops::Plan& plan, const EngineOptions& options, int64_t n_ctx,
                                                    int n_sequences) {
  return std::make_unique<FaultyExecutor>(plan, options, n_ctx, n_sequences);
}

}  // namespace assay::faults
