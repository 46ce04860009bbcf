#include "target/divergence.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "assay/score.h"
#include "engine/model_state.h"
#include "num/math64.h"

namespace assay::target {
namespace {

constexpr int64_t kFirstPosition = 8;  // before that a model hardly knows what the text is

// The same rows of a tensor, in its other type; nullopt: `view` is no whole rows of it.
std::optional<tensor::TensorView> in_other_type(const tensor::TensorView& view, const tensor::TensorView& whole,
                                                tensor::DType dtype, std::span<const std::byte> bytes) {
  const std::byte *begin = whole.data.data(), *end = begin + whole.data.size();
  if (view.data.data() < begin || view.data.data() >= end || view.shape.cols() != whole.shape.cols()) {
    return std::nullopt;
  }
  const int64_t offset = view.data.data() - begin;
  if (offset % whole.row_bytes() != 0) return std::nullopt;
  tensor::TensorView other{dtype, view.shape, {}};
  other.data = bytes.subspan(static_cast<size_t>(offset / whole.row_bytes() * other.row_bytes()),
                             static_cast<size_t>(view.shape.rows() * other.row_bytes()));
  return other;
}

// sum p_base (log p_base - log p) of one position.
double divergence_of_row(std::span<const double> base, std::span<const double> logits) {
  const double base_total = log_sum_exp(base), total = log_sum_exp(logits);
  double sum = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double p = num::exp64(base[i] - base_total);
    if (p != 0) sum += p * ((base[i] - base_total) - (logits[i] - total));
  }
  return std::max(sum, 0.0);
}

}  // namespace

Divergence::Divergence(std::shared_ptr<const Model> model, std::span<const TokenId> ids, base::ThreadPool& pool)
    : model_(std::move(model)), pool_(pool), ids_(ids.begin(), ids.end()) {
  ContextOptions options;
  options.n_ctx = static_cast<int64_t>(ids_.size());
  options.n_ubatch = options.n_ctx;
  options.n_outputs_max = options.n_ctx;
  options.n_threads = pool.n_threads();
  options_ = engine::resolve(options, *model_);
  base_ = logits_of(model_->state().built.plan);
}

std::vector<float> Divergence::logits_of(const ops::Plan& plan) const {
  const engine::ChosenExecutor chosen = engine::make_executor(*model_, options_, pool_, &plan);
  const auto n = static_cast<int64_t>(ids_.size());
  std::vector<int32_t> positions(ids_.size()), sequences(ids_.size(), 0);
  std::vector<uint8_t> outputs(ids_.size(), 0);
  for (int64_t i = 0; i < n; ++i) positions[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  std::fill(outputs.begin() + kFirstPosition, outputs.end(), uint8_t{1});
  chosen.executor->run({ids_, positions, sequences, outputs});
  std::vector<float> all;
  for (int64_t i = 0; i < n - kFirstPosition; ++i) {
    const std::span<const float> row = chosen.executor->logits(i);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

double Divergence::with(std::string_view tensor, tensor::DType dtype, std::span<const std::byte> bytes) const {
  const tensor::TensorView& whole = model_->state().file.find(tensor)->view;
  ops::Plan plan = model_->state().built.plan;
  bool is_read = false;
  for (ops::Weight& weight : plan.weights) {
    const auto other = in_other_type(weight.view, whole, dtype, bytes);
    if (!other || weight.stride != 0) continue;
    weight.view = *other;
    is_read = true;
  }
  if (!is_read) return -1;
  const std::vector<float> logits = logits_of(plan);
  const auto width = static_cast<size_t>(model_->vocab_size());
  const auto n_rows = static_cast<int64_t>(base_.size() / width);
  std::vector<double> rows(static_cast<size_t>(n_rows));
  pool_.run(n_rows, [&](int64_t i, int) {
    const auto wide = [&](const std::vector<float>& from) {
      const auto begin = from.begin() + i * static_cast<int64_t>(width);
      return std::vector<double>(begin, begin + static_cast<int64_t>(width));
    };
    rows[static_cast<size_t>(i)] = divergence_of_row(wide(base_), wide(logits));
  });
  double sum = 0;
  for (const double row : rows) sum += row;
  return sum / static_cast<double>(n_rows);
}

}  // namespace assay::target
