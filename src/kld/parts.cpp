// See parts.h.
#include "kld/parts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "assay/error.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "base/index.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan_split.h"

namespace assay::kld {
namespace {

bool lies_in(std::span<const std::byte> part, std::span<const std::byte> whole) noexcept {
  return !part.empty() && part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size();
}

class WeightsRead final : public ops::FieldVisitor {
 public:
  std::vector<ops::WeightId> ids;
  void matrix(ops::WeightId& id) override { ids.push_back(id); }
  void vector(ops::WeightId& id) override { ids.push_back(id); }
};

bool op_reads(const ops::Plan& plan, const ops::Op& op, const tensor::TensorView& own) {
  WeightsRead read;
  op.record.fields(read);
  return std::ranges::any_of(read.ids, [&](ops::WeightId id) {
    return id != ops::kNone && lies_in(plan.weights[at(id)].view.data, own.data);
  });
}

// Whole rows of `own`, or elements of its one row, as the same ones of `with`.
std::span<const std::byte> same_part(const ops::Weight& weight, const Replacement& r) {
  const auto offset = weight.view.data.data() - r.own.data.data();
  const tensor::DTypeTraits &from = tensor::traits(r.own.dtype), &to = tensor::traits(r.with.dtype);
  const int64_t first = offset / from.block_bytes * from.block_elements, n = weight.view.shape.elements();
  if (first % to.block_elements != 0 || n % to.block_elements != 0 || weight.stride != 0) {
    throw Error(Errc::unsupported,
                weight.name + " is a part that " + std::string(to.name) + " has no whole blocks for");
  }
  return r.with.data.subspan(at(first / to.block_elements * to.block_bytes),
                             at(n / to.block_elements * to.block_bytes));
}

}  // namespace

std::vector<int32_t> borders_of(const ops::Plan& plan) {
  std::vector<int32_t> borders;
  for (int32_t layer = 1; layer < ops::n_layers(plan); ++layer) {
    try {
      ops::split_plan(plan, std::span(&layer, 1));
      borders.push_back(layer);
    } catch (const Error& error) {
      if (error.code != Errc::unsupported) throw;
    }
  }
  return borders;
}

bool reads(const ops::Plan& part, const tensor::TensorView& own) {
  return std::ranges::any_of(part.ops, [&](const ops::Op& op) { return op_reads(part, op, own); });
}

bool reads_outside_layers(const ops::Plan& plan, const tensor::TensorView& own) {
  return std::ranges::any_of(plan.ops, [&](const ops::Op& op) { return op.layer < 0 && op_reads(plan, op, own); });
}

ops::Plan with_replaced(ops::Plan part, std::span<const Replacement> replacements) {
  for (ops::Weight& weight : part.weights) {
    const auto found =
        std::ranges::find_if(replacements, [&](const Replacement& r) { return lies_in(weight.view.data, r.own.data); });
    if (found == replacements.end()) continue;
    weight.view.data = same_part(weight, *found);
    weight.view.dtype = found->with.dtype;
  }
  return part;
}

PartRunner::PartRunner(const ops::Plan& part, const Chunk& longest, int64_t n_rows, base::ThreadPool& pool)
    : part_(part), n_rows_(n_rows) {
  const auto n_tokens = static_cast<int64_t>(longest.tokens.size());
  ops::ExecutorOptions options;
  options.n_ctx = n_tokens;
  options.n_batch_max = part.logits == ops::kNone ? n_tokens : std::max(longest.n_unscored, n_rows);
  options.n_outputs_max = part.logits == ops::kNone ? 1 : n_rows;
  executor_ = backend::cpu::make_cpu_executor(part, options, {}, pool);
}

Rows PartRunner::run(const Chunk& chunk, const Rows& input,
                     const std::function<void(int64_t, int64_t, const ops::Executor&)>& sink) const {
  const auto n_tokens = static_cast<int64_t>(chunk.tokens.size());
  std::vector<int32_t> positions(chunk.tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  executor_->truncate(0, 0);
  Rows handed;
  for (int64_t begin = 0; begin < n_tokens;) {
    const bool scored = part_.logits != ops::kNone && begin >= chunk.n_unscored;
    const int64_t n = part_.logits == ops::kNone ? n_tokens
                      : scored                   ? std::min(n_rows_, n_tokens - begin)
                                                 : chunk.n_unscored;
    if (part_.input != ops::kNone) {
      const std::span<float> rows = executor_->input(n);
      const size_t width = rows.size() / at(n);
      std::ranges::copy(std::span(input).subspan(at(begin) * width, rows.size()), rows.begin());
    }
    const std::vector<uint8_t> outputs(at(n), scored ? 1 : 0);
    executor_->run({std::span(chunk.tokens).subspan(at(begin), at(n)),
                    std::span(positions).subspan(at(begin), at(n)),
                    {},
                    outputs});
    if (part_.handed != ops::kNone) {
      const std::span<const float> rows = executor_->handed();
      handed.insert(handed.end(), rows.begin(), rows.end());
    }
    if (scored) sink(begin - chunk.n_unscored, n, *executor_);
    begin += n;
  }
  return handed;
}

}  // namespace assay::kld
