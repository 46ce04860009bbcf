// The logits as a whole: numbers, the same in a second run, depending on the text, and right to the
// last row of the vocabulary, where heads that are split or padded go wrong.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/model_state.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "verify/definitions.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

constexpr int64_t kLogitsTokens = 8;
constexpr int64_t kTailRows = 64;

// Keeps what the head reads.
class HeadWatch final : public ops::OpObserver {
 public:
  explicit HeadWatch(ops::ValueId input) : input_(input) {}
  bool wants(const ops::Op& op) override { return ops::values_of(op).output == input_; }
  void on_op(const ops::Op&, int64_t, int64_t width, std::span<const double> values) override {
    width_ = width;
    values_.assign(values.begin(), values.end());
  }
  std::span<const double> row(int64_t i) const {
    return std::span(values_).subspan(static_cast<size_t>(i * width_), static_cast<size_t>(width_));
  }
  int64_t n_rows() const { return width_ == 0 ? 0 : static_cast<int64_t>(values_.size()) / width_; }

 private:
  ops::ValueId input_;
  int64_t width_ = 0;
  std::vector<double> values_;
};

const ops::Linear* find_head(const ops::Plan& plan) {
  for (const ops::Op& op : plan.ops) {
    const auto* linear = op.as<ops::Linear>();
    if (linear != nullptr && linear->y == plan.logits) return linear;
  }
  return nullptr;
}

std::vector<std::vector<float>> run_once(const Subject& subject, const std::vector<TokenId>& ids,
                                         ops::OpObserver* observer) {
  const auto n = static_cast<int64_t>(ids.size());
  const auto executor = subject.make_executor(n, n, 1);
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int32_t> sequences(ids.size(), 0);
  const std::vector<uint8_t> outputs(ids.size(), 1);
  executor->run({ids, positions, sequences, outputs, {.observer = observer}});
  std::vector<std::vector<float>> logits;
  for (int64_t i = 0; i < n; ++i) logits.emplace_back(executor->logits(i).begin(), executor->logits(i).end());
  return logits;
}

// A row of the head times what it reads, in double, and what a right product may differ from it:
// rounding, and half a step of activations as coarse as the source declares, over blocks of 256 at
// most.
struct Product {
  double value = 0, bound = 0;
};
Product head_product(const Subject& subject, const tensor::TensorView& head, int64_t i_row, std::span<const double> x) {
  const tensor::DTypeTraits& t = tensor::traits(head.dtype);
  const std::byte* row = head.row(i_row);
  const int bits = subject.declared.activation_bits;
  const double step = bits == 0 ? 0 : bits == 8 ? 1.0 / 254 : 1.0 / (254 * 128);
  const double exact_product = subject.declared.activations_f16 ? 0x1p-8 : 1e-5;
  Product product;
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t begin = 0; begin < n; begin += 256) {
    const int64_t end = std::min(n, begin + 256);
    double largest = 0;
    for (int64_t j = begin; j < end; ++j) largest = std::max(largest, std::abs(x[static_cast<size_t>(j)]));
    for (int64_t j = begin; j < end; ++j) {
      const double w = defined_value(head.dtype, row + j / t.block_elements * t.block_bytes, j % t.block_elements);
      const double term = w * x[static_cast<size_t>(j)];
      product.value += term;
      product.bound += std::abs(term) * exact_product + std::abs(w) * largest * step;
    }
  }
  return product;
}

void check_tail(const Subject& subject, const HeadWatch& watch, const std::vector<std::vector<float>>& logits,
                const ops::Linear& head, Findings& findings) {
  const ops::Plan& plan = subject.model->state().built.plan;
  const tensor::TensorView& weights = plan.weights[static_cast<size_t>(head.w)].view;
  if (head.bias != ops::kNone || watch.n_rows() != static_cast<int64_t>(logits.size())) return;
  const int64_t n_vocab = plan.vocab_size;
  for (const size_t i : {size_t{0}, logits.size() - 1}) {
    for (int64_t row = std::max<int64_t>(0, n_vocab - kTailRows); row < n_vocab; ++row) {
      const Product needed = head_product(subject, weights, row, watch.row(static_cast<int64_t>(i)));
      const double found = static_cast<double>(logits[i][static_cast<size_t>(row)]);
      if (std::abs(found - needed.value) <= needed.bound) continue;
      findings.fail(
          fmt::format("position {}, token {} of {}: its logit is {}, row {} of {} times what the "
                      "head reads is {}",
                      i, token_with_text(subject, static_cast<TokenId>(row)), n_vocab, shown_value(found), row,
                      plan.weights[static_cast<size_t>(head.w)].name, shown_value(needed.value)));
      return;
    }
  }
}

void check_numbers(const Subject& subject, const std::vector<std::vector<float>>& logits, Findings& findings) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto bad = std::find_if(logits[i].begin(), logits[i].end(), [](float x) { return !std::isfinite(x); });
    if (bad != logits[i].end()) {
      return findings.fail(fmt::format("position {}: the logit of token {} is {}", i,
                                       token_with_text(subject, static_cast<TokenId>(bad - logits[i].begin())),
                                       shown_value(static_cast<double>(*bad))));
    }
    const auto [least, most] = std::minmax_element(logits[i].begin(), logits[i].end());
    if (*least == *most && logits[i].size() > 1)
      findings.fail(fmt::format("position {}: every logit is {}", i, shown_value(static_cast<double>(*most))));
    double sum = 0;
    for (const float x : logits[i]) sum += std::exp(static_cast<double>(x) - static_cast<double>(*most));
    if (!(sum >= 1 && sum <= static_cast<double>(logits[i].size())))
      findings.fail(fmt::format("position {}: no probabilities come of the logits", i));
  }
}

}  // namespace

VerifyStage check_logits(const Subject& subject, const StageRun& run) {
  return run_stage(run, "logits", "Logits", [&](Findings& findings) {
    const ops::Plan& plan = subject.model->state().built.plan;
    const int64_t n = std::min(kLogitsTokens, subject.model->state().n_ctx_usable());
    const std::vector<TokenId> ids = probe_ids(subject, run, n, n);
    if (plan.logits == ops::kNone) return findings.skip("an encoder has no logits");
    const ops::Linear* head = find_head(plan);
    if (head == nullptr) return findings.skip("the logits are not the output of a matrix product");
    HeadWatch watch(head->x);
    const std::vector<std::vector<float>> logits = run_once(subject, ids, &watch);
    show_progress(run, 1, 2);
    end_if_cancelled(run);
    for (const std::vector<float>& row : logits) {
      if (static_cast<int64_t>(row.size()) != plan.vocab_size) {
        return findings.fail(fmt::format("{} logits for a vocabulary of {}", row.size(), plan.vocab_size));
      }
    }
    check_numbers(subject, logits, findings);
    check_tail(subject, watch, logits, *head, findings);
    if (logits.size() > 1 && logits.front() == logits.back() && ids.front() != ids.back()) {
      findings.fail(
          "the logits after the first token and after the last are the same: they do not depend on "
          "the text");
    }
    if (run_once(subject, ids, nullptr) != logits && subject.same_bits && !findings.failed()) {
      findings.fail("a second run of the same tokens, unobserved, gives other logits");
    }
    findings.summary(fmt::format(
        "{} of {}: finite, the same when run again unobserved, the last {} tokens of "
        "the vocabulary by their rows",
        plural(static_cast<int64_t>(logits.size()), "row"), plan.vocab_size, std::min(kTailRows, plan.vocab_size)));
  });
}

}  // namespace assay::verify
