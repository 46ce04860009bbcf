// Known ways to multiply with experts' matrices and to add their results wrongly.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "faults/decode.h"
#include "faults/table.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"

namespace assay::faults::dictionary {
namespace {

struct ExpertRule {
  ops::WeightId w{};
  std::function<int64_t(int64_t expert, int64_t r)> row;                         // of the matrix, and of the bias
  std::function<int64_t(int64_t rank, std::span<const double> experts)> expert;  // that the rank goes to
  std::function<int64_t(int64_t rank)> input = [](int64_t rank) {
    return rank;
  };  // whose input the rank gets, where each has its own
  bool bias = true;
};

ExpertRule right_rule(const Case& c) {
  const auto& op = c.record<ops::ExpertLinear>();
  ExpertRule rule;
  rule.w = op.w;
  rule.row = [&op](int64_t expert, int64_t r) { return op.row_of(expert) + r; };
  rule.expert = [&op](int64_t rank, std::span<const double> experts) {
    return op.routes == ops::kNone ? rank : static_cast<int64_t>(experts[static_cast<size_t>(rank)]);
  };
  return rule;
}

void offer(const Case& c, Sink& out, std::string text, ExpertRule rule) {
  out.add_rows(std::move(text), [&c, rule = std::move(rule)](int64_t row, double* y) {
    const auto& op = c.record<ops::ExpertLinear>();
    const tensor::TensorView& view = c.view(rule.w);
    const int64_t n_rows = view.shape.elements() / op.d_in;
    const bool own_inputs = c.failed.a_width != op.d_in;
    const std::vector<double> bias = rule.bias && op.bias != ops::kNone ? c.vector(op.bias) : std::vector<double>();
    const std::span<const double> experts = op.routes == ops::kNone
                                                ? std::span<const double>()
                                                : std::span(c.b(row) + op.n_used, static_cast<size_t>(op.n_used));
    std::vector<double> w(static_cast<size_t>(op.d_in));
    for (int64_t rank = 0; rank < op.n_used; ++rank) {
      const int64_t expert = std::clamp<int64_t>(rule.expert(rank, experts), 0, op.n_experts - 1);
      const double* x = c.a(row) + (own_inputs ? rule.input(rank) * op.d_in : 0);
      for (int64_t r = 0; r < op.d_out; ++r) {
        const int64_t from = std::clamp<int64_t>(rule.row(expert, r), 0, n_rows - 1);
        weights_at(view, from * op.d_in, op.d_in, w.data());
        double sum = bias.empty() ? 0 : bias[static_cast<size_t>(from)];
        for (int64_t j = 0; j < op.d_in; ++j) sum += w[static_cast<size_t>(j)] * x[j];
        y[rank * op.d_out + r] = sum;
      }
    }
  });
}

void offer_bias(const Case& c, Sink& out) {
  if (c.record<ops::ExpertLinear>().bias == ops::kNone) return;
  ExpertRule rule = right_rule(c);
  rule.bias = false;
  offer(c, out, fmt::format("the experts' bias {} is not added", c.weight_name(c.record<ops::ExpertLinear>().bias)),
        rule);
}

// Halves of one fused tensor: gate's rows and up's.
void offer_fused(const Case& c, Sink& out) {
  const auto& op = c.record<ops::ExpertLinear>();
  if (op.rows_per_expert != 2 * op.d_out) return;
  ExpertRule rule = right_rule(c);
  rule.row = [&op](int64_t expert, int64_t r) { return expert * op.rows_per_expert + op.d_out - op.first_row + r; };
  offer(c, out, "gate and up are swapped in the fused tensor: the other half of each expert's rows is read", rule);
  rule.row = [&op](int64_t expert, int64_t r) {
    return expert * op.rows_per_expert + 2 * r + (op.first_row == 0 ? 0 : 1);
  };
  offer(c, out, "gate and up are read from alternate rows of the fused tensor; they are its halves", rule);
}

void offer_other(const Case& c, Sink& out) {
  const auto& op = c.record<ops::ExpertLinear>();
  for (const ops::Op& other : c.plan.ops) {
    const auto* product = other.as<ops::ExpertLinear>();
    if (product == nullptr || product->w == op.w || other.layer != c.op().layer ||
        !(c.view(product->w).shape == c.view(op.w).shape))
      continue;
    ExpertRule rule = right_rule(c);
    rule.w = product->w;
    offer(c, out, fmt::format("multiplied with {} in place of {}", c.weight_name(product->w), c.weight_name(op.w)),
          rule);
  }
}

void offer_expert(const Case& c, Sink& out) {
  const auto& op = c.record<ops::ExpertLinear>();
  const auto with = [&](std::string text, std::function<int64_t(int64_t, std::span<const double>)> expert) {
    ExpertRule rule = right_rule(c);
    rule.expert = std::move(expert);
    offer(c, out, std::move(text), rule);
  };
  if (op.routes != ops::kNone) {
    with("every rank goes to the first one's expert",
         [](int64_t, std::span<const double> experts) { return static_cast<int64_t>(experts[0]); });
    with("the rank is taken for the expert", [](int64_t rank, std::span<const double>) { return rank; });
    with("every expert is taken for the one after it", [](int64_t rank, std::span<const double> experts) {
      return static_cast<int64_t>(experts[static_cast<size_t>(rank)]) + 1;
    });
    with("experts stand in the reverse order of their ranks", [](int64_t rank, std::span<const double> experts) {
      return static_cast<int64_t>(experts[experts.size() - 1 - static_cast<size_t>(rank)]);
    });
  } else {
    with("all heads are multiplied with the first one's matrix",
         [](int64_t, std::span<const double>) { return int64_t{0}; });
  }
  if (c.failed.a_width == op.d_in) return;
  ExpertRule rule = right_rule(c);
  rule.input = [](int64_t) { return int64_t{0}; };
  offer(c, out, "every rank multiplies the first one's input; each has its own", rule);
}

// weight of rank i -> what multiplies its result
void offer_sum(const Case& c, Sink& out, std::string text,
               std::function<double(std::span<const double> weights, size_t rank)> weight) {
  out.add_rows(std::move(text), [&c, weight = std::move(weight)](int64_t row, double* y) {
    const auto n = static_cast<size_t>(c.record<ops::ExpertSum>().n_used);
    const std::span<const double> weights(c.b(row), n);
    std::fill_n(y, c.failed.width, 0.0);
    for (size_t rank = 0; rank < n; ++rank) {
      const double w = weight(weights, rank);
      for (int64_t j = 0; j < c.failed.width; ++j)
        y[j] += w * c.a(row)[static_cast<int64_t>(rank) * c.failed.width + j];
    }
  });
}

void offer_weights(const Case& c, Sink& out) {
  if (c.record<ops::ExpertSum>().weighted) {
    offer_sum(c, out, "the experts' results are added without their weights",
              [](std::span<const double>, size_t) { return 1.0; });
    offer_sum(c, out, "the experts' results have equal weights: their mean is taken",
              [](std::span<const double> w, size_t) { return 1.0 / static_cast<double>(w.size()); });
    offer_sum(c, out, "the experts' weights are applied twice",
              [](std::span<const double> w, size_t i) { return w[i] * w[i]; });
    offer_sum(c, out, "the experts' weights stand in reverse order",
              [](std::span<const double> w, size_t i) { return w[w.size() - 1 - i]; });
    offer_sum(c, out, "every expert has the first one's weight",
              [](std::span<const double> w, size_t) { return w[0]; });
  } else {
    offer_sum(c, out, "the experts' weights are applied here, where they were applied to the inputs",
              [](std::span<const double> w, size_t i) { return w[i]; });
  }
  const bool weighted = c.record<ops::ExpertSum>().weighted;
  offer_sum(c, out, "only the first expert's result counts", [weighted](std::span<const double> w, size_t i) {
    return i > 0 ? 0.0 : weighted ? w[0] : 1.0;
  });
  offer_sum(c, out, "the last expert's result is left out", [weighted](std::span<const double> w, size_t i) {
    return i + 1 == w.size() ? 0.0 : weighted ? w[i] : 1.0;
  });
}

void offer_unscaled(const Case& c, Sink& out) {
  out.add_rows("the experts' inputs are not multiplied by their weights", [&c](int64_t row, double* y) {
    for (int64_t j = 0; j < c.failed.width; ++j) y[j] = c.a(row)[j % c.failed.a_width];
  });
}

constexpr Entry kLinear[] = {{"expert_fused", "R16", offer_fused},
                             {"expert_bias", "", offer_bias},
                             {"expert_weights_swapped", "R16", offer_other},
                             {"expert_rank", "", offer_expert}};
constexpr Entry kSum[] = {{"expert_weights", "C59", offer_weights}};
constexpr Entry kScale[] = {{"expert_weights", "C59", offer_unscaled}};

}  // namespace

std::span<const Entry> expert_linear_entries() noexcept { return kLinear; }
std::span<const Entry> expert_sum_entries() noexcept { return kSum; }
std::span<const Entry> expert_scale_entries() noexcept { return kScale; }

}  // namespace assay::faults::dictionary
