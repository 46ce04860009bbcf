// See oracle_executor.h. One function per op record, each the op's formula as its header in ops/ states it, with
// doubles.
#include "backend/oracle/oracle_executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "backend/oracle/kv_cache.h"
#include "backend/oracle/matrix.h"
#include "backend/oracle/oracle_ops.h"
#include "backend/oracle/slots.h"
#include "lower/small_weights.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/batch_shape.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/float64.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan_check.h"
#include "ops/rows/activation.h"
#include "ops/rows/select_outputs.h"
#include "ops/state/state_store.h"
#include "quant/format.h"

namespace assay::backend::oracle {
namespace {

constexpr int64_t kRowsPerRecordTask = 4;

int64_t widest_input(const ops::Plan& plan) {
  int64_t widest = 1;
  for (const ops::Value& value : plan.values) {
    if (plan.logits == ops::kNone || &value != &plan.values[static_cast<size_t>(plan.logits)])
      widest = std::max(widest, value.width);
  }
  return widest;
}

class OracleExecutor final : public ops::Executor {
 public:
  OracleExecutor(const ops::Plan& plan, const ops::ExecutorOptions& options, base::ThreadPool& pool)
      : plan_(plan), options_(options), pool_(pool), slots_(plan, options.n_batch_max, options.n_outputs_max),
        cache_(plan.cache_layers, options.n_ctx, options.n_sequences), states_(plan, options),
        matrix_(options.n_batch_max, widest_input(plan), pool.n_threads()), small_weights_(plan),
        shares_(static_cast<size_t>(pool.n_threads()), std::vector<double>(static_cast<size_t>(options.n_ctx))) {
    for (size_t i = 0; i < plan.values.size(); ++i) value_rows_.push_back(slots_.data(static_cast<ops::ValueId>(i)));
  }

  void run(const ops::Batch& batch) override;
  std::span<const float> logits(int64_t i_output) const override;
  void read_logits(int64_t i_output, std::span<double> out) const override;
  void truncate(int sequence, int64_t n_positions) override {
    cache_.truncate(sequence, states_.truncate(sequence, n_positions, cache_.n_positions(sequence)));
  }
  int64_t n_positions(int sequence) const override { return cache_.n_positions(sequence); }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    cache_.visit(sequence, sink);
    if (cache_.n_positions(sequence) > 0) states_.visit(sequence, sink);
  }
  size_t cache_bytes() const override { return cache_.bytes() + states_.bytes(); }
  size_t arena_bytes() const override { return slots_.bytes() + matrix_.bytes() + small_weights_.bytes(); }

 private:
  void check_batch(ops::BatchShape& shape) const;
  void run_op(const ops::Op& op);
  void run_state(const ops::Op& op);
  void run_cached(const ops::Op& op);
  void run_rows(const ops::Op& op);
  void run_op(const ops::Linear& op);
  void run_op(const ops::KvStore& op);
  void run_op(const ops::Attention& op);
  void run_op(const ops::SelectOutputs& op);
  void run_op(const ops::ExpertLinear& op);
  void observe(const ops::Op& op, ops::OpObserver& observer);

  const ops::Value& value(ops::ValueId id) const { return plan_.values[static_cast<size_t>(id)]; }
  const ops::Weight& weight(ops::WeightId id) const { return plan_.weights[static_cast<size_t>(id)]; }
  int64_t n_rows(ops::ValueId id) const { return value(id).domain.n_rows(n_tokens_, n_outputs_); }
  double* row(ops::ValueId id, int64_t i) { return slots_.data(id) + i * value(id).width; }
  // The token behind a row of a value, as positions and sequences are asked of it.
  int64_t token_of(ops::ValueId id, int64_t i) const { return value(id).domain.token_of(i, output_tokens_); }
  int sequence_of(int64_t token) const {
    return batch_.sequences.empty() ? 0 : batch_.sequences[static_cast<size_t>(token)];
  }

  const ops::Plan& plan_;
  ops::ExecutorOptions options_;
  base::ThreadPool& pool_;
  Slots slots_;
  KvCache cache_;
  ops::StateStore<double> states_;
  MatrixProduct matrix_;
  std::vector<double*> value_rows_;          // per value, as host_rows_ has them
  const lower::SmallWeights small_weights_;  // norms and biases
  ops::HostRows<double> host_rows_;
  std::vector<std::vector<double>> shares_;  // per thread: one per key
  std::vector<int64_t> output_tokens_;       // which tokens of the batch have logits
  std::vector<float> logits_f32_;
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
  host_rows_ = {&plan_, value_rows_, small_weights_.all(), {}, batch.tokens, batch.positions, output_tokens_};
  if (!plan_.causal || !states_.empty()) {
    ops::BatchShape shape;
    check_batch(shape);
    if (!plan_.causal) ops::check_whole(shape);
    states_.begin(shape.token_runs);
  }
  for (int64_t t = 0; t < n_tokens_; ++t) cache_.extend(sequence_of(t), batch.positions[static_cast<size_t>(t)] + 1);
  for (const ops::Op& op : plan_.ops) {
    run_op(op);
    if (batch.request.observer != nullptr) [[unlikely]]
      observe(op, *batch.request.observer);
  }
  states_.end();
  const double* all = slots_.data(plan_.output());
  logits_f32_.assign(all, all + n_outputs_ * plan_.output_width());
}

void OracleExecutor::check_batch(ops::BatchShape& shape) const {
  std::vector<int64_t> n_positions;
  for (int sequence = 0; sequence < options_.n_sequences; ++sequence)
    n_positions.push_back(cache_.n_positions(sequence));
  ops::check_batch(batch_, options_, n_positions, shape);
}

std::span<const float> OracleExecutor::logits(int64_t i_output) const {
  return std::span(logits_f32_)
      .subspan(static_cast<size_t>(i_output * plan_.output_width()), static_cast<size_t>(plan_.output_width()));
}

void OracleExecutor::read_logits(int64_t i_output, std::span<double> out) const {
  const double* from = slots_.data(plan_.output()) + i_output * plan_.output_width();
  std::copy(from, from + plan_.output_width(), out.begin());
}

void OracleExecutor::observe(const ops::Op& op, ops::OpObserver& observer) {
  if (!observer.wants(op)) return;
  const ops::ValueId id = ops::announced_value(op);
  const int64_t rows = n_rows(id);
  observer.on_op(op, rows, value(id).width, std::span(slots_.data(id), static_cast<size_t>(rows * value(id).width)));
}

void OracleExecutor::run_op(const ops::Op& op) {
  if (op.record.role() == ops::Role::row) return run_rows(op);
  if (op.record.role() == ops::Role::state) return run_state(op);
  if (op.record.role() == ops::Role::cached) return run_cached(op);
  if (const auto* linear = op.as<ops::Linear>()) return run_op(*linear);
  if (const auto* store = op.as<ops::KvStore>()) return run_op(*store);
  if (const auto* attention = op.as<ops::Attention>()) return run_op(*attention);
  if (const auto* select = op.as<ops::SelectOutputs>()) return run_op(*select);
  if (const auto* experts = op.as<ops::ExpertLinear>()) return run_op(*experts);
  throw Error(Errc::unsupported, op.name + ": the oracle has no formula for " + op.record.kind());
}

// By the record's own formula.
void OracleExecutor::run_rows(const ops::Op& op) {
  const int64_t n = n_rows(ops::values_of(op).output);
  pool_.run((n + kRowsPerRecordTask - 1) / kRowsPerRecordTask, [&](int64_t i, int) {
    op.record.run(host_rows_, i * kRowsPerRecordTask, std::min(n, (i + 1) * kRowsPerRecordTask));
  });
}

void OracleExecutor::run_state(const ops::Op& op) {
  const int32_t id = ops::state_of(op);
  pool_.run(plan_.states[static_cast<size_t>(id)].n_units, [&](int64_t unit, int) {
    states_.run(id, unit, unit + 1,
                [&](const ops::StateRun<double>& at) { op.record.run(host_rows_, at, unit, unit + 1); });
  });
}

// By the record's own formula, token by token.
void OracleExecutor::run_cached(const ops::Op& op) {
  const int32_t layer = ops::cache_layer_of(op);
  std::vector<std::vector<int32_t>> orders(shares_.size(), std::vector<int32_t>(static_cast<size_t>(options_.n_ctx)));
  pool_.run(n_tokens_, [&](int64_t t, int thread) {
    const auto i_thread = static_cast<size_t>(thread);
    const HeadCache head = cache_.head(sequence_of(t), layer, 0);
    const ops::CachedRun<double> at{cache_.n_positions(sequence_of(t)),
                                    head.k,
                                    head.k_stride,
                                    head.v,
                                    head.v_stride,
                                    shares_[i_thread].data(),
                                    orders[i_thread].data()};
    op.record.run(host_rows_, at, t, t + 1);
  });
}

void OracleExecutor::run_op(const ops::Linear& op) {
  if (n_rows(op.x) == 0) return;
  std::vector<double> bias;
  if (op.bias != ops::kNone) bias = ops::vector_of(weight(op.bias));
  matrix_.run(slots_.data(op.x), n_rows(op.x), weight(op.w).view, bias, slots_.data(op.y), pool_);
}

void OracleExecutor::run_op(const ops::KvStore& op) {
  for (int64_t t = 0; t < n_tokens_; ++t) {
    cache_.store(sequence_of(t), op.layer, batch_.positions[static_cast<size_t>(t)], row(op.k, t),
                 op.v == ops::kNone ? nullptr : row(op.v, t));
  }
}

void OracleExecutor::run_op(const ops::Attention& op) {
  const int64_t v_dim = plan_.cache_layers[static_cast<size_t>(op.layer)].v_dim();
  pool_.run(n_rows(op.q) * op.n_heads, [&](int64_t i, int thread) {
    const int64_t row_q = i / op.n_heads, head = i % op.n_heads;
    const int64_t token = token_of(op.q, row_q);
    const int64_t position = batch_.positions[static_cast<size_t>(token)];
    ScoreRule rule{op.scale, op.softcap};
    if (op.sinks != ops::kNone) rule.sink = small_weights_.all()[static_cast<size_t>(op.sinks)][head];
    attend({row(op.q, row_q) + head * op.head_dim, static_cast<size_t>(op.head_dim)},
           cache_.head(sequence_of(token), op.layer, head / (op.n_heads / op.n_kv_heads)),
           ops::first_visible(position, op), ops::last_visible(position, cache_.n_positions(sequence_of(token)), op),
           rule, shares_[static_cast<size_t>(thread)], {row(op.y, row_q) + head * v_dim, static_cast<size_t>(v_dim)});
  });
}

// Expert by expert, over the pairs of a token and a rank that go to it.
void OracleExecutor::run_op(const ops::ExpertLinear& op) {
  const int64_t n_pairs = op.n_pairs(n_rows(op.y));
  const tensor::TensorView& w = weight(op.w).view;
  const quant::Format& format = *quant::find_format(w.dtype);
  std::vector<double> x, y, bias;
  std::vector<int64_t> own;  // pairs of the expert
  for (int64_t expert = 0; expert < op.n_experts; ++expert) {
    own.clear(), x.clear();
    for (int64_t pair = 0; pair < n_pairs; ++pair) {
      const double* routes = op.routes == ops::kNone ? nullptr : row(op.routes, pair / op.n_used);
      if (ops::expert_of(routes, op.n_used, pair % op.n_used) != expert) continue;
      own.push_back(pair);
      const auto [i, column] = op.input_of(value(op.x), pair);
      const double* from = row(op.x, i) + column;
      x.insert(x.end(), from, from + op.d_in);
    }
    if (own.empty()) continue;
    if (op.bias != ops::kNone) {
      const float* first = small_weights_.all()[static_cast<size_t>(op.bias)] + op.row_of(expert);
      bias.assign(first, first + op.d_out);
    }
    y.resize(own.size() * static_cast<size_t>(op.d_out));
    const auto decode = [&](int64_t r, float* out) {
      quant::decode_row(format, w.row(op.row_of(expert) + r), op.d_in, out);
    };
    matrix_.run(x.data(), static_cast<int64_t>(own.size()), op.d_in, op.d_out, decode, bias, y.data(), pool_);
    for (size_t p = 0; p < own.size(); ++p) {
      const auto [i, column] = op.result_of(own[p]);
      std::copy_n(y.data() + p * static_cast<size_t>(op.d_out), op.d_out, row(op.y, i) + column);
    }
  }
}

void OracleExecutor::run_op(const ops::SelectOutputs& op) {
  for (int64_t i = 0; i < n_outputs_; ++i) {
    const double* from = row(op.x, output_tokens_[static_cast<size_t>(i)]);
    std::copy(from, from + value(op.x).width, row(op.y, i));
  }
}

}  // namespace

std::unique_ptr<ops::Executor> make_oracle_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                    base::ThreadPool& pool) {
  return std::make_unique<OracleExecutor>(plan, options, pool);
}

}  // namespace assay::backend::oracle
