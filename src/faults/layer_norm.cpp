// Known ways to compute LayerNorm wrongly.
#include "ops/rows/layer_norm.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "faults/table.h"

namespace assay::faults::dictionary {
namespace {

// y = (x - mean) / sqrt(variance + eps) * w + b over runs of d elements.
struct LayerNormRule {
  std::vector<double> w, b;  // empty: none
  double eps = 0;
  int64_t d = 0;
  bool by_column = false, keeps_mean = false, unbiased = false;
};

LayerNormRule right_rule(const Case& c) {
  const auto& op = c.record<ops::LayerNorm>();
  LayerNormRule rule;
  if (op.w != ops::kNone) rule.w = c.vector(op.w);
  if (op.bias != ops::kNone) rule.b = c.vector(op.bias);
  rule.eps = static_cast<double>(op.eps), rule.d = op.d, rule.by_column = op.by_column;
  return rule;
}

void offer(const Case& c, Sink& out, std::string text, LayerNormRule rule) {
  out.add_rows(std::move(text), [&c, rule = std::move(rule)](int64_t row, double* y) {
    const auto n = static_cast<double>(rule.d);
    for (int64_t begin = 0; begin < c.failed.width; begin += rule.d) {
      const double* x = c.a(row) + begin;
      double mean = 0, squares = 0;
      for (int64_t j = 0; j < rule.d && !rule.keeps_mean; ++j) mean += x[j] / n;
      for (int64_t j = 0; j < rule.d; ++j) squares += (x[j] - mean) * (x[j] - mean);
      const double root = std::sqrt(squares / (rule.unbiased ? n - 1 : n) + rule.eps);
      for (int64_t j = 0; j < rule.d; ++j) {
        const auto of = static_cast<size_t>(rule.by_column ? begin + j : j);
        y[begin + j] = (x[j] - mean) / root * (rule.w.empty() ? 1.0 : rule.w[of]) + (rule.b.empty() ? 0.0 : rule.b[of]);
      }
    }
  });
}

void offer_rms(const Case& c, Sink& out) {
  LayerNormRule rule = right_rule(c);
  rule.keeps_mean = true;
  offer(c, out, "RMSNorm in place of LayerNorm: the mean is not taken off", rule);
  rule.b.clear();
  if (!right_rule(c).b.empty())
    offer(c, out, "RMSNorm in place of LayerNorm: no mean is taken off, no bias added", rule);
}

void offer_bias(const Case& c, Sink& out) {
  LayerNormRule rule = right_rule(c);
  if (rule.b.empty()) return;
  rule.b.clear();
  offer(c, out, fmt::format("the bias {} is not added", c.weight_name(c.record<ops::LayerNorm>().bias)), rule);
}

void offer_weight(const Case& c, Sink& out) {
  LayerNormRule rule = right_rule(c);
  if (rule.w.empty()) return;
  for (double& w : rule.w) w += 1;
  offer(c, out, "the norm multiplies by 1 + weight, where the file's weight has the 1 in it", rule);
  rule.w.clear();
  offer(c, out, "the norm is not multiplied by its weight", rule);
}

void offer_eps(const Case& c, Sink& out) {
  const LayerNormRule right = right_rule(c);
  for (const double eps : {1e-5, 1e-6, 1e-12, 0.0, 1e-3}) {
    if (std::abs(eps - right.eps) <= 1e-6 * right.eps) continue;
    LayerNormRule rule = right;
    rule.eps = eps;
    offer(c, out, fmt::format("LayerNorm adds eps {:g} in place of the file's {:g}", eps, right.eps), rule);
  }
}

void offer_unbiased(const Case& c, Sink& out) {
  LayerNormRule rule = right_rule(c);
  if (rule.d < 2) return;
  rule.unbiased = true;
  offer(c, out, fmt::format("the variance is divided by {}; by {} is right", rule.d - 1, rule.d), rule);
}

void offer_heads(const Case& c, Sink& out) {
  LayerNormRule rule = right_rule(c);
  if (!rule.by_column) return;
  rule.by_column = false;
  offer(c, out, "all heads have the first one's weights; each has its own", rule);
}

constexpr Entry kEntries[] = {
    {"layer_norm_rms", "R14", offer_rms},        {"layer_norm_bias", "", offer_bias},
    {"layer_norm_weight", "", offer_weight},     {"layer_norm_eps", "C48", offer_eps},
    {"layer_norm_variance", "", offer_unbiased}, {"layer_norm_heads", "", offer_heads},
};

}  // namespace

std::span<const Entry> layer_norm_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
