// See divergence.h.
#include "target/divergence.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "assay/error.h"
#include "engine/model_state.h"

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

}  // namespace

Divergence::Divergence(std::shared_ptr<const Model> model, std::span<const TokenId> ids, base::ThreadPool& pool)
    : model_(std::move(model)), pool_(pool), ids_(ids.begin(), ids.end()) {
  ContextOptions options;
  options.n_ctx = static_cast<int64_t>(ids_.size());
  options.n_ubatch = options.n_ctx;
  options.n_outputs_max = options.n_ctx;
  options.n_threads = pool.n_threads();
  options_ = engine::resolve(options, *model_);
  base_.emplace(std::max<int64_t>(static_cast<int64_t>(ids_.size()) - kFirstPosition, 0), model_->vocab_size());
  std::vector<uint8_t> is_set(static_cast<size_t>(base_->n_rows()), 0);
  run(model_->state().built.plan, [&](int64_t row, std::span<const float> logits) {
    is_set[static_cast<size_t>(row)] = base_->set(row, logits) ? 1 : 0;
  });
  if (!std::ranges::all_of(is_set, [](uint8_t set) { return set != 0; })) {
    throw Error(Errc::bad_file, "the model's logits are no finite numbers: nothing can be measured from them");
  }
}

template <class Use>
void Divergence::run(const ops::Plan& plan, const Use& use) const {
  const engine::ChosenExecutor chosen = engine::make_executor(*model_, options_, pool_, &plan);
  const auto n = static_cast<int64_t>(ids_.size());
  std::vector<int32_t> positions(ids_.size()), sequences(ids_.size(), 0);
  std::vector<uint8_t> outputs(ids_.size(), 0);
  for (int64_t i = 0; i < n; ++i) positions[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  std::fill(outputs.begin() + kFirstPosition, outputs.end(), uint8_t{1});
  chosen.executor->run({ids_, positions, sequences, outputs});
  pool_.run(base_->n_rows(), [&](int64_t row, int) { use(row, chosen.executor->logits(row)); });
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
  std::vector<double> rows(static_cast<size_t>(base_->n_rows()));
  run(plan, [&](int64_t row, std::span<const float> logits) {
    rows[static_cast<size_t>(row)] = base_->divergence(row, logits);
  });
  double sum = 0;
  for (const double row : rows) sum += row;
  return sum / static_cast<double>(rows.size());
}

}  // namespace assay::target
