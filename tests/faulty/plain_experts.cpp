// See plain_experts.h.
#include "faulty/plain_experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace assay::faults {
namespace {

void softmax(std::vector<double>& x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - largest);
  for (double& v : x) v /= sum;
}

// Falling; the lower index first among equals.
std::vector<size_t> falling(const std::vector<double>& x) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  return order;
}

void drop_groups(const ops::Route& op, std::vector<double>& choice) {
  const size_t size = choice.size() / static_cast<size_t>(op.n_groups);
  std::vector<double> groups;
  for (size_t g = 0; g < static_cast<size_t>(op.n_groups); ++g) {
    std::vector<double> own(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                            choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    const std::vector<size_t> order = falling(own);
    groups.push_back(own[order[0]] + (op.group_by_best || size == 1 ? 0 : own[order[1]]));
  }
  const std::vector<size_t> order = falling(groups);
  for (size_t i = static_cast<size_t>(op.n_groups_used); i < order.size(); ++i) {
    for (size_t j = 0; j < size; ++j) choice[order[i] * size + j] = -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

void route_plain(const ops::Route& op, std::span<const float> logits, std::span<const float> bias,
                 std::span<const float> scales, Fault fault, float* y) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (op.gating == ops::Gating::softmax) softmax(scores);
  for (double& s : scores) {
    if (op.gating == ops::Gating::sigmoid) s = 1 / (1 + std::exp(-s));
    if (op.gating == ops::Gating::sqrt_softplus) s = std::sqrt(std::log1p(std::exp(s)));
  }
  std::vector<double> choice = scores;
  for (size_t i = 0; i < bias.size(); ++i) choice[i] += static_cast<double>(bias[i]);
  if (fault == Fault::route_bias_in_weight) scores = choice;
  if (op.n_groups > 1) drop_groups(op, choice);
  std::vector<size_t> order = falling(choice);
  if (fault == Fault::route_best_passed_over) std::rotate(order.begin(), order.begin() + 1, order.end());
  if (fault == Fault::route_ties_high) {  // among equals to within rounding the higher expert comes first
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const double apart = choice[a] - choice[b];
      return std::abs(apart) > 1e-7 * std::abs(choice[a]) ? apart > 0 : a > b;
    });
  }
  std::vector<double> weights;
  for (size_t i = 0; i < static_cast<size_t>(op.n_used); ++i) weights.push_back(scores[order[i]]);
  if (op.gating == ops::Gating::softmax_of_chosen) softmax(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), op.least_sum);
  for (size_t i = 0; i < weights.size(); ++i) {
    const double scale = op.scale * (scales.empty() ? 1 : static_cast<double>(scales[order[i]]));
    y[i] = static_cast<float>((op.normalise ? weights[i] / sum : weights[i]) * scale);
    y[weights.size() + i] = static_cast<float>(order[i]);
  }
}

void expert_linear_plain(const ops::ExpertLinear& op, std::span<const float> w, std::span<const float> bias,
                         std::span<const float> x, std::span<const float> routes, float* y) {
  const bool own_inputs = static_cast<int64_t>(x.size()) != op.d_in;
  for (int64_t rank = 0; rank < op.n_used; ++rank) {
    const int64_t expert = routes.empty() ? rank : static_cast<int64_t>(routes[static_cast<size_t>(op.n_used + rank)]);
    const float* input = x.data() + (own_inputs ? rank * op.d_in : 0);
    for (int64_t r = 0; r < op.d_out; ++r) {
      const int64_t row = op.row_of(expert) + r;
      float sum = 0;
      for (int64_t j = 0; j < op.d_in; ++j) sum += w[static_cast<size_t>(row * op.d_in + j)] * input[j];
      y[rank * op.d_out + r] = bias.empty() ? sum : sum + bias[static_cast<size_t>(row)];
    }
  }
}

void expert_sum_plain(const ops::ExpertSum& op, std::span<const float> x, std::span<const float> routes, Fault fault,
                      std::span<float> y) {
  const bool weighted = op.weighted && fault != Fault::experts_unweighted;
  for (size_t j = 0; j < y.size(); ++j) {
    float sum = 0;
    for (size_t rank = 0; rank < static_cast<size_t>(op.n_used); ++rank)
      sum += (weighted ? routes[rank] : 1.0f) * x[rank * y.size() + j];
    y[j] = sum;
  }
}

}  // namespace assay::faults
