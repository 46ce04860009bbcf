// See oracle_executor.h. One function per op record, each the op's formula as its header in ops/ states it, with doubles.
#include "backend/oracle/oracle_executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "backend/oracle/kv_cache.h"
#include "backend/oracle/matrix.h"
#include "backend/oracle/oracle_ops.h"
#include "backend/oracle/slots.h"
#include "ops/attention.h"
#include "ops/op_values.h"
#include "quant/format.h"

namespace assay::backend::oracle {
namespace {

int64_t widest_input(const ops::Plan& plan) {
  int64_t widest = 1;
  for (const ops::Value& value : plan.values) {
    if (&value != &plan.values[static_cast<size_t>(plan.logits)]) widest = std::max(widest, value.width);
  }
  return widest;
}

class OracleExecutor final : public ops::Executor {
 public:
  OracleExecutor(const ops::Plan& plan, const ops::ExecutorOptions& options, base::ThreadPool& pool)
      : plan_(plan), options_(options), pool_(pool), slots_(plan, options.n_batch_max, options.n_outputs_max),
        cache_(plan.cache_layers, options.n_ctx, options.n_sequences),
        matrix_(options.n_batch_max, widest_input(plan), pool.n_threads()),
        shares_(static_cast<size_t>(pool.n_threads()), std::vector<double>(static_cast<size_t>(options.n_ctx))) {}

  void run(const ops::Batch& batch) override;
  std::span<const float> logits(int64_t i_output) const override;
  void read_logits(int64_t i_output, std::span<double> out) const override;
  void truncate(int sequence, int64_t n_positions) override { cache_.truncate(sequence, n_positions); }
  int64_t n_positions(int sequence) const override { return cache_.n_positions(sequence); }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    cache_.visit(sequence, sink);
  }
  void set_observer(ops::OpObserver* observer) override { observer_ = observer; }
  size_t cache_bytes() const override { return cache_.bytes(); }
  size_t arena_bytes() const override { return slots_.bytes() + matrix_.bytes(); }

 private:
  void run_op(const ops::Embed& op);
  void run_op(const ops::RmsNorm& op);
  void run_op(const ops::Linear& op);
  void run_op(const ops::Rope& op);
  void run_op(const ops::KvStore& op);
  void run_op(const ops::Attention& op);
  void run_op(const ops::Add& op);
  void run_op(const ops::Gate& op);
  void run_op(const ops::SelectOutputs& op);
  void run_op(const ops::Gather& op);
  void observe(const ops::Op& op);

  const ops::Value& value(ops::ValueId id) const { return plan_.values[static_cast<size_t>(id)]; }
  const ops::Weight& weight(ops::WeightId id) const { return plan_.weights[static_cast<size_t>(id)]; }
  int64_t n_rows(ops::ValueId id) const { return value(id).outputs_only ? n_outputs_ : n_tokens_; }
  double* row(ops::ValueId id, int64_t i) { return slots_.data(id) + i * value(id).width; }
  // The token behind a row of a value, as positions and sequences are asked of it.
  int64_t token_of(ops::ValueId id, int64_t i) const { return value(id).outputs_only ? output_tokens_[static_cast<size_t>(i)] : i; }
  int sequence_of(int64_t token) const { return batch_.sequences.empty() ? 0 : batch_.sequences[static_cast<size_t>(token)]; }

  const ops::Plan& plan_;
  ops::ExecutorOptions options_;
  base::ThreadPool& pool_;
  Slots slots_;
  KvCache cache_;
  MatrixProduct matrix_;
  std::vector<std::vector<double>> shares_;              // per thread: one per key
  std::vector<int64_t> output_tokens_;                   // which tokens of the batch have logits
  std::vector<float> logits_f32_;
  ops::OpObserver* observer_ = nullptr;
  ops::Batch batch_;
  int64_t n_tokens_ = 0;
  int64_t n_outputs_ = 0;
};

void OracleExecutor::run(const ops::Batch& batch) {
  batch_ = batch;
  n_tokens_ = static_cast<int64_t>(batch.tokens.size());
  output_tokens_.clear();
  for (int64_t t = 0; t < n_tokens_; ++t) {
    if (batch.outputs[static_cast<size_t>(t)] != 0) output_tokens_.push_back(t);
  }
  n_outputs_ = static_cast<int64_t>(output_tokens_.size());
  if (n_tokens_ > options_.n_batch_max || n_outputs_ > options_.n_outputs_max) {
    throw Error(Errc::bad_request, "oracle: more tokens or outputs than the executor was made for");
  }
  for (int64_t t = 0; t < n_tokens_; ++t) cache_.extend(sequence_of(t), batch.positions[static_cast<size_t>(t)] + 1);
  for (const ops::Op& op : plan_.ops) {
    std::visit([this](const auto& record) { run_op(record); }, op.record);
    if (observer_ != nullptr) [[unlikely]] observe(op);
  }
  const double* all = slots_.data(plan_.logits);
  logits_f32_.assign(all, all + n_outputs_ * plan_.vocab_size);
}

std::span<const float> OracleExecutor::logits(int64_t i_output) const {
  return std::span(logits_f32_).subspan(static_cast<size_t>(i_output * plan_.vocab_size), static_cast<size_t>(plan_.vocab_size));
}

void OracleExecutor::read_logits(int64_t i_output, std::span<double> out) const {
  const double* from = slots_.data(plan_.logits) + i_output * plan_.vocab_size;
  std::copy(from, from + plan_.vocab_size, out.begin());
}

void OracleExecutor::observe(const ops::Op& op) {
  if (!observer_->wants(op)) return;
  const ops::ValueId id = ops::announced_value(op);
  const int64_t rows = n_rows(id);
  observer_->on_op(op, rows, value(id).width, std::span(slots_.data(id), static_cast<size_t>(rows * value(id).width)));
}

void OracleExecutor::run_op(const ops::Embed& op) {
  const tensor::TensorView& table = weight(op.table).view;
  const quant::Format& format = *quant::find_format(table.dtype);
  const int64_t d = table.shape.cols();
  std::vector<float> decoded(static_cast<size_t>(d));
  for (int64_t t = 0; t < n_tokens_; ++t) {
    quant::decode_row(format, table.row(batch_.tokens[static_cast<size_t>(t)]), d, decoded.data());
    std::transform(decoded.begin(), decoded.end(), row(op.y, t), [&](float x) { return static_cast<double>(x) * op.scale; });
  }
}

void OracleExecutor::run_op(const ops::RmsNorm& op) {
  const std::vector<double> w = vector_of(weight(op.w));
  const auto d = static_cast<size_t>(op.d);
  pool_.run(n_rows(op.x), [&](int64_t i, int) {
    for (int64_t begin = 0; begin < value(op.x).width; begin += op.d) {
      rms_norm({row(op.x, i) + begin, d}, w, static_cast<double>(op.eps), {row(op.y, i) + begin, d});
    }
  });
}

void OracleExecutor::run_op(const ops::Linear& op) {
  if (n_rows(op.x) == 0) return;
  std::vector<double> bias;
  if (op.bias != ops::kNone) bias = vector_of(weight(op.bias));
  matrix_.run(slots_.data(op.x), n_rows(op.x), weight(op.w).view, bias, slots_.data(op.y), pool_);
}

void OracleExecutor::run_op(const ops::Rope& op) {
  const ops::RopeSpec& spec = plan_.ropes[static_cast<size_t>(op.rope)];
  const auto width = static_cast<size_t>(value(op.x).width);
  pool_.run(n_rows(op.x), [&](int64_t i, int) {
    const int32_t position = batch_.positions[static_cast<size_t>(token_of(op.x, i))];
    rotate(spec, position, op.n_heads, op.head_dim, {row(op.x, i), width}, {row(op.y, i), width});
  });
}

void OracleExecutor::run_op(const ops::KvStore& op) {
  for (int64_t t = 0; t < n_tokens_; ++t) {
    cache_.store(sequence_of(t), op.layer, batch_.positions[static_cast<size_t>(t)], row(op.k, t), row(op.v, t));
  }
}

void OracleExecutor::run_op(const ops::Attention& op) {
  const auto head_dim = static_cast<size_t>(op.head_dim);
  pool_.run(n_rows(op.q) * op.n_heads, [&](int64_t i, int thread) {
    const int64_t row_q = i / op.n_heads, head = i % op.n_heads;
    const int64_t token = token_of(op.q, row_q);
    const int64_t position = batch_.positions[static_cast<size_t>(token)];
    attend({row(op.q, row_q) + head * op.head_dim, head_dim}, cache_.head(sequence_of(token), op.layer, head / (op.n_heads / op.n_kv_heads)),
           ops::first_visible(position, op.window), position, op.scale, shares_[static_cast<size_t>(thread)],
           {row(op.y, row_q) + head * op.head_dim, head_dim});
  });
}

void OracleExecutor::run_op(const ops::Add& op) {
  const int64_t n = n_rows(op.y) * value(op.y).width;
  std::transform(row(op.a, 0), row(op.a, 0) + n, row(op.b, 0), row(op.y, 0), [](double a, double b) { return a + b; });
}

void OracleExecutor::run_op(const ops::Gate& op) {
  const int64_t width = value(op.y).width;
  pool_.run(n_rows(op.y), [&](int64_t i, int) {
    const double* gate = row(op.gate, i);
    const double* up = row(op.up, i);
    double* y = row(op.y, i);
    if (op.activation == ops::GateActivation::silu) {
      for (int64_t j = 0; j < width; ++j) y[j] = silu(gate[j]) * up[j];
    } else {
      for (int64_t j = 0; j < width; ++j) y[j] = gelu_tanh(gate[j]) * up[j];
    }
  });
}

void OracleExecutor::run_op(const ops::SelectOutputs& op) {
  for (int64_t i = 0; i < n_outputs_; ++i) {
    const double* from = row(op.x, output_tokens_[static_cast<size_t>(i)]);
    std::copy(from, from + value(op.x).width, row(op.y, i));
  }
}

void OracleExecutor::run_op(const ops::Gather&) { throw Error(Errc::unsupported, "the oracle runs whole models, no shards of them"); }

}  // namespace

std::unique_ptr<ops::Executor> make_oracle_executor(const ops::Plan& plan, const ops::ExecutorOptions& options, base::ThreadPool& pool) {
  return std::make_unique<OracleExecutor>(plan, options, pool);
}

}  // namespace assay::backend::oracle
