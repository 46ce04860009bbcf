// Known ways to choose experts and to weigh them wrongly.
#include "ops/linear/route.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "faults/table.h"
#include "num/math64.h"
#include "ops/rows/activation.h"

namespace assay::faults::dictionary {
namespace {

struct RouteRule {
  ops::Gating gating{};
  std::vector<double> bias, expert_scales;  // empty: none
  bool bias_weighs = false;                 // the weight has the bias of the choice in it
  bool normalise = true, scaled_first = false, smallest = false;
  double scale = 1, least_sum = 0, near = 0;
  int64_t n_groups = 1, n_groups_used = 1;
  bool group_by_best = false;
  int64_t skipped = 0;  // ranks that are passed over
};

RouteRule right_rule(const Case& c) {
  const auto& op = c.record<ops::Route>();
  RouteRule rule;
  rule.gating = op.gating, rule.normalise = op.normalise, rule.scale = op.scale, rule.least_sum = op.least_sum;
  rule.near = op.near;
  rule.n_groups = op.n_groups, rule.n_groups_used = op.n_groups_used, rule.group_by_best = op.group_by_best;
  if (op.bias != ops::kNone) rule.bias = c.vector(op.bias);
  if (op.expert_scales != ops::kNone) rule.expert_scales = c.vector(op.expert_scales);
  return rule;
}

void softmax_of(std::vector<double>& x) {
  const double m = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = num::exp64(v - m);
  for (double& v : x) v /= sum;
}

std::vector<double> scores_of(ops::Gating gating, std::vector<double> x) {
  if (gating == ops::Gating::softmax) softmax_of(x);
  for (double& v : x) {
    if (gating == ops::Gating::sigmoid) v = ops::sigmoid64(v);
    if (gating == ops::Gating::sqrt_softplus) v = std::sqrt(ops::softplus64(v));
  }
  return x;
}

// Indices by falling value, the lower one first among equals.
std::vector<size_t> order_of(const std::vector<double>& x) {
  std::vector<size_t> order(x.size());
  for (size_t i = 0; i < x.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  return order;
}

void keep_groups(const RouteRule& rule, std::vector<double>& choice) {
  const size_t size = choice.size() / static_cast<size_t>(rule.n_groups);
  std::vector<double> of_group;
  for (size_t begin = 0; begin < choice.size(); begin += size) {
    std::vector<double> own(choice.begin() + static_cast<long>(begin),
                            choice.begin() + static_cast<long>(begin + size));
    std::sort(own.rbegin(), own.rend());
    of_group.push_back(rule.group_by_best || size == 1 ? own[0] : own[0] + own[1]);
  }
  const std::vector<size_t> order = order_of(of_group);
  for (size_t i = static_cast<size_t>(rule.n_groups_used); i < order.size(); ++i) {
    std::fill_n(choice.begin() + static_cast<long>(order[i] * size), size, -std::numeric_limits<double>::infinity());
  }
}

// Weights of Gating::sparse_mixer.
std::vector<double> shares_among_near(const std::vector<double>& logits, const double* experts, size_t k, double near) {
  std::vector<double> open = logits, weights;
  for (size_t rank = 0; rank < k; ++rank) {
    const auto expert = static_cast<size_t>(experts[rank]);
    double sum = 0;
    for (size_t i = 0; i < open.size(); ++i) {
      const double m = logits[expert];
      if (!((m - open[i]) / std::max(std::fabs(logits[i]), m) > near)) sum += num::exp64(open[i] - m);
    }
    weights.push_back(1 / sum);
    open[expert] = -std::numeric_limits<double>::infinity();
  }
  return weights;
}

RowFunction route_with(const Case& c, RouteRule rule) {
  return [&c, rule = std::move(rule)](int64_t row, double* y) {
    const auto k = static_cast<size_t>(c.record<ops::Route>().n_used);
    const std::vector<double> logits(c.a(row), c.a(row) + c.failed.a_width);
    const std::vector<double> scores = scores_of(rule.gating, logits);
    std::vector<double> choice = scores;
    for (size_t i = 0; i < rule.bias.size(); ++i) choice[i] += rule.bias[i];
    const std::vector<double> biased = choice;
    if (rule.n_groups > 1) keep_groups(rule, choice);
    for (double& x : choice) x = rule.smallest ? -x : x;
    const std::vector<size_t> order = order_of(choice);
    std::vector<double> w(k);
    for (size_t i = 0; i < k; ++i) {
      const size_t expert = order[std::min(i + static_cast<size_t>(rule.skipped), order.size() - 1)];
      w[i] = rule.bias_weighs ? biased[expert] : scores[expert];
      y[k + i] = static_cast<double>(expert);
    }
    if (rule.gating == ops::Gating::softmax_of_chosen) softmax_of(w);
    if (rule.gating == ops::Gating::sparse_mixer) w = shares_among_near(logits, y + k, k, rule.near);
    double sum = rule.least_sum;
    for (const double x : w) sum += rule.scaled_first ? x * rule.scale : x;
    for (size_t i = 0; i < k; ++i) {
      y[i] = (rule.normalise ? w[i] / sum : w[i]) * rule.scale;
      if (!rule.expert_scales.empty()) y[i] *= rule.expert_scales[static_cast<size_t>(y[k + i])];
    }
  };
}

void offer(const Case& c, Sink& out, std::string text, RouteRule rule) {
  out.add_rows(std::move(text), route_with(c, std::move(rule)));
}

void offer_normalise(const Case& c, Sink& out) {
  RouteRule rule = right_rule(c);
  rule.normalise = !rule.normalise;
  offer(c, out,
        rule.normalise ? "the experts' weights are divided by their sum, which the file does not ask for"
                       : "the experts' weights are not divided by their sum (renormalised)",
        rule);
}

const char* name_of(ops::Gating gating) {
  switch (gating) {
    case ops::Gating::softmax: return "a softmax over all experts, before the choice";
    case ops::Gating::sigmoid: return "sigmoids";
    case ops::Gating::softmax_of_chosen: return "a softmax over the chosen experts, after the choice";
    case ops::Gating::sqrt_softplus: return "roots of softplus";
    case ops::Gating::sparse_mixer: return "shares among the logits near the chosen one (sparsemixer)";
  }
  return "";
}

void offer_gating(const Case& c, Sink& out) {
  using enum ops::Gating;
  const RouteRule right = right_rule(c);
  for (const ops::Gating gating : {softmax, softmax_of_chosen, sigmoid, sqrt_softplus}) {
    for (const bool normalise : {right.normalise, !right.normalise}) {
      if (gating == right.gating) continue;
      RouteRule rule = right;
      rule.gating = gating, rule.normalise = normalise;
      offer(c, out,
            fmt::format("the experts' weights are {}{}; {} are right", name_of(gating),
                        normalise == right.normalise ? ""
                        : normalise                  ? ", divided by their sum"
                                                     : ", not divided by their sum",
                        name_of(right.gating)),
            rule);
    }
  }
}

void offer_bias(const Case& c, Sink& out) {
  RouteRule rule = right_rule(c);
  if (rule.bias.empty()) return;
  const std::string& name = c.weight_name(c.record<ops::Route>().bias);
  rule.bias_weighs = true;
  offer(c, out, fmt::format("the bias {} of the choice is in the weights too; it serves to choose alone", name), rule);
  rule = right_rule(c);
  rule.bias.clear();
  offer(c, out, fmt::format("the bias {} takes no part in the choice", name), rule);
}

void offer_scale(const Case& c, Sink& out) {
  RouteRule rule = right_rule(c);
  if (rule.normalise) {
    rule.scaled_first = true;
    if (rule.scale != 1)
      offer(
          c, out,
          fmt::format("the scale {:g} is divided out again: it is applied before the division by the sum", rule.scale),
          rule);
  }
  rule = right_rule(c);
  if (rule.scale != 1) {
    rule.scale = 1;
    offer(c, out, fmt::format("the scale {:g} of the experts' weights is missing", right_rule(c).scale), rule);
    rule.scale = right_rule(c).scale * right_rule(c).scale;
    offer(c, out, fmt::format("the scale {:g} of the experts' weights is applied twice", right_rule(c).scale), rule);
  }
  rule = right_rule(c);
  if (rule.expert_scales.empty()) return;
  rule.expert_scales.clear();
  offer(c, out, "the experts' own scales are missing", rule);
}

void offer_groups(const Case& c, Sink& out) {
  RouteRule rule = right_rule(c);
  if (rule.n_groups == 1) return;
  rule.group_by_best = !rule.group_by_best;
  offer(c, out,
        rule.group_by_best ? "a group's score is its best expert's; the sum of its two best is right"
                           : "a group's score is the sum of its two best experts'; its best is right",
        rule);
  rule.n_groups = 1;
  offer(c, out, "the groups of experts are ignored: every expert takes part in the choice", rule);
}

void offer_choice(const Case& c, Sink& out) {
  RouteRule rule = right_rule(c);
  rule.skipped = 1;
  offer(c, out, "the best expert is passed over: ranks are counted from the second", rule);
  rule.skipped = 0, rule.smallest = true;
  offer(c, out, "the experts with the smallest scores are chosen", rule);
  out.add_rows("every token goes to the experts of the first token of the batch",
               [&c](int64_t, double* y) { std::copy_n(c.right(0), c.failed.width, y); });
}

constexpr Entry kEntries[] = {
    {"route_normalise", "C59", offer_normalise}, {"route_gating", "", offer_gating}, {"route_bias", "", offer_bias},
    {"route_scale", "C59", offer_scale},         {"route_groups", "", offer_groups}, {"route_choice", "", offer_choice},
};

}  // namespace

std::span<const Entry> route_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
