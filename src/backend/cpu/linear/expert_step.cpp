// See expert_step.h.
#include "backend/cpu/linear/expert_step.h"

#include <algorithm>

#include "backend/cpu/linear/linear_thread.h"
#include "base/round_up.h"
#include "lower/placement.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kExpertUnitsPerThread = 16;
constexpr int64_t kExpertUnitBytesMin = 8 * 1024;

bool as_floats(const RunState& state, const ops::ExpertLinear& op, const ops::ExecutorOptions& options) {
  const quant::Format* format = quant::find_format(state.plan.weights[static_cast<size_t>(op.w)].view.dtype);
  return options.weights_as_f32 || format->activation == quant::Activation::f32;
}

int64_t pairs_max(const RunState& state, const ops::ExpertLinear& op, const ops::ExecutorOptions& options) {
  return op.n_pairs(lower::rows_max(state.plan, op.y, options));
}

}  // namespace

LinearTask ExpertSteps::task_of(const ops::ExpertLinear& op) const {
  const tensor::TensorView& weights = state_.plan.weights[static_cast<size_t>(op.w)].view;
  LinearTask task;
  task.format = quant::find_format(weights.dtype);
  task.weights = weights.data.data();
  task.row_bytes = weights.row_bytes();
  task.k = op.d_in;
  task.as_f32 = as_floats(state_, op, options_);
  task.n_tokens = pairs_max(state_, op, options_);
  task.x.kind = task.format->activation == quant::Activation::f32 ? quant::Activation::a32 : task.format->activation;
  task.x.planes = options_.planes;
  task.x.k = op.d_in;
  task.x.n_rows = task.n_tokens;
  task.y = tensor::Mat{nullptr, task.n_tokens, op.d_out, op.d_out};
  return task;
}

ExpertSteps::ExpertSteps(const RunState& state, const ops::ExecutorOptions& options)
    : state_(state), options_(options) {
  size_t integer_bytes = 0, n_pairs = 0, n_experts = 0;
  for (const ops::Op& any : state.plan.ops) {
    const auto* op = any.as<ops::ExpertLinear>();
    if (op == nullptr) continue;
    const int64_t n = pairs_max(state, *op, options);
    x_bytes_ = std::max(x_bytes_, base::round_up(static_cast<size_t>(n * op->d_in) * sizeof(float), 64));
    y_bytes_ = std::max(y_bytes_, base::round_up(static_cast<size_t>(n * op->d_out) * sizeof(float), 64));
    const LinearTask task = task_of(*op);
    const LinearChoice& choice =
        choices_.emplace(op, LinearChoice(state.kernel_set, task, state.kernel_row)).first->second;
    scratch_bytes_ = std::max(scratch_bytes_, choice.scratch_bytes(task));
    if (!task.as_f32)
      integer_bytes = std::max(integer_bytes, quant::activations_bytes(task.x.kind, options.planes, n, op->d_in));
    n_pairs = std::max(n_pairs, static_cast<size_t>(n));
    n_experts = std::max(n_experts, static_cast<size_t>(op->n_experts));
  }
  memory_ = base::AlignedBuffer(x_bytes_ + y_bytes_ + integer_bytes, "the rows of experts");
  x_ = reinterpret_cast<float*>(memory_.data());
  y_ = reinterpret_cast<float*>(memory_.data() + x_bytes_);
  integers_ = memory_.data() + x_bytes_ + y_bytes_;
  pairs_.resize(n_pairs);
  first_pair_.reserve(n_experts + 1);
  used_.reserve(n_experts);
}

void ExpertSteps::sort_pairs(const ops::ExpertLinear& op, int64_t n_pairs) {
  const int64_t n_tokens = n_pairs / op.n_used;
  const auto routes_of = [&](int64_t t) { return op.routes == ops::kNone ? nullptr : state_.row(op.routes, t); };
  const auto expert_of = [&](const float* routes, int64_t rank) {
    return static_cast<size_t>(ops::expert_of(routes, op.n_used, rank));
  };
  first_pair_.assign(static_cast<size_t>(op.n_experts) + 1, 0);
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t rank = 0; rank < op.n_used; ++rank) ++first_pair_[expert_of(routes_of(t), rank) + 1];
  }
  used_.clear();
  for (size_t e = 0; e < static_cast<size_t>(op.n_experts); ++e) {
    if (first_pair_[e + 1] > 0) used_.push_back(static_cast<int32_t>(e));
    first_pair_[e + 1] += first_pair_[e];
  }
  // Placed from the end, so that first_pair_ ends as it began: a count of what is left before each expert's own.
  for (int64_t t = n_tokens; t-- > 0;) {
    for (int64_t rank = op.n_used; rank-- > 0;) {
      const size_t e = expert_of(routes_of(t), rank);
      pairs_[static_cast<size_t>(--first_pair_[e + 1])] = static_cast<int32_t>(t * op.n_used + rank);
    }
  }
  // Now first_pair_[e + 1] is where e begins.
  for (size_t e = 0; e < static_cast<size_t>(op.n_experts); ++e) first_pair_[e] = first_pair_[e + 1];
  first_pair_.back() = static_cast<int32_t>(n_pairs);
}

LinearTask ExpertSteps::expert_task(const ops::ExpertLinear& op, int64_t expert) const {
  LinearTask task = task_of(op);
  const int64_t begin = first_pair_[static_cast<size_t>(expert)],
                n = first_pair_[static_cast<size_t>(expert) + 1] - begin;
  task.weights += op.row_of(expert) * task.row_bytes;
  task.n_tokens = n;
  task.x_f32 = tensor::ConstMat(x_ + begin * op.d_in, n, op.d_in, op.d_in);
  if (!task.as_f32) {
    quant::Activations& x = task.x = quantised_;
    x.n_rows = n;
    x.q += begin * x.k;
    if (x.l != nullptr) x.l += begin * x.k;
    x.d += begin * (x.k / x.block());
    if (x.q_sums != nullptr) x.q_sums += begin * (x.k / x.group());
    if (x.l_sums != nullptr) x.l_sums += begin * (x.k / x.group());
  }
  if (op.bias != ops::kNone) task.bias = state_.small_weights[static_cast<size_t>(op.bias)] + op.row_of(expert);
  task.y = tensor::Mat{y_ + begin * op.d_out, n, op.d_out, op.d_out};
  return task;
}

void ExpertSteps::run(const ops::ExpertLinear& op) {
  const int64_t n_pairs = op.n_pairs(state_.n_rows(op.y));
  sort_pairs(op, n_pairs);
  const ops::Value& of_x = state_.plan.values[static_cast<size_t>(op.x)];
  const LinearTask any = task_of(op);
  const LinearChoice& choice = choice_of(op);
  if (!any.as_f32) quantised_ = quant::carve(any.x.kind, options_.planes, n_pairs, op.d_in, integers_);
  state_.pool.run(n_pairs, [&](int64_t p, int) {
    const auto [row, column] = op.input_of(of_x, pairs_[static_cast<size_t>(p)]);
    std::copy_n(state_.column(op.x, row, column), op.d_in, x_ + p * op.d_in);
    if (!any.as_f32) quantise_rows(state_.kernel_set, {x_, n_pairs, op.d_in, op.d_in}, quantised_, p, p + 1);
  });

  const auto n_used = static_cast<int64_t>(used_.size());
  const int64_t unit_bytes = std::max(
      kExpertUnitBytesMin, n_used * op.d_out * any.row_bytes / (kExpertUnitsPerThread * state_.pool.n_threads()));
  const int64_t row_step = choice.row_step(any.n_tokens);
  const int64_t rows_per_unit = base::round_up(std::max<int64_t>(1, unit_bytes / any.row_bytes), row_step);
  const int64_t units_per_expert = (op.d_out + rows_per_unit - 1) / rows_per_unit;
  state_.pool.run(n_used * units_per_expert, [&](int64_t unit, int thread) {
    const int64_t begin = unit % units_per_expert * rows_per_unit;
    const LinearTask task = expert_task(op, used_[static_cast<size_t>(unit / units_per_expert)]);
    LinearThread(state_.scratch[static_cast<size_t>(thread)])
        .rows(choice.at(task.n_tokens), task, begin, std::min(op.d_out, begin + rows_per_unit));
  });
  state_.pool.run(n_pairs, [&](int64_t p, int) {
    const auto [row, column] = op.result_of(pairs_[static_cast<size_t>(p)]);
    std::copy_n(y_ + p * op.d_out, op.d_out, state_.column(op.y, row, column));
  });
}

}  // namespace assay::backend::cpu
