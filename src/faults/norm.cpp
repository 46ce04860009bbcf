// Known ways to compute RMSNorm wrongly.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "faults/table.h"
#include "ops/attention/attention.h"
#include "ops/rows/rms_norm.h"

namespace assay::faults::dictionary {
namespace {

// y = (x - shift) / root * w, over runs of d elements; w repeats where a run is longer than it.
struct NormRule {
  std::vector<double> w;
  double eps = 0;
  int64_t d = 0;
  bool remove_mean = false;  // LayerNorm
  bool eps_outside = false;  // sqrt(mean) + eps
  bool sum_not_mean = false;
  bool normalise = true;
  int64_t lost_begin = 0, lost_end = 0;  // columns of the input that are zero
};

// A norm without weights multiplies by 1.
std::vector<double> weights_of(const Case& c, ops::WeightId w) {
  return w == ops::kNone ? std::vector<double>{1.0} : c.vector(w);
}

NormRule right_rule(const Case& c) {
  const auto& op = c.record<ops::RmsNorm>();
  NormRule rule;
  rule.w = weights_of(c, op.w);
  rule.eps = static_cast<double>(op.eps);
  rule.d = op.d;
  return rule;
}

double root_of(const NormRule& rule, const double* x, double mean) {
  double squares = 0;
  for (int64_t j = 0; j < rule.d; ++j) squares += (x[j] - mean) * (x[j] - mean);
  const double variance = rule.sum_not_mean ? squares : squares / static_cast<double>(rule.d);
  return rule.eps_outside ? std::sqrt(variance) + rule.eps : std::sqrt(variance + rule.eps);
}

RowFunction norm_with(const Case& c, NormRule rule) {
  return [&c, rule = std::move(rule)](int64_t row, double* y) {
    const int64_t width = c.failed.width;
    for (int64_t begin = 0; begin < width; begin += rule.d) {
      std::vector<double> x(c.a(row) + begin, c.a(row) + begin + rule.d);
      for (int64_t j = rule.lost_begin; j < rule.lost_end; ++j) {
        if (j >= begin && j < begin + rule.d) x[static_cast<size_t>(j - begin)] = 0;
      }
      double mean = 0;
      for (int64_t j = 0; rule.remove_mean && j < rule.d; ++j)
        mean += x[static_cast<size_t>(j)] / static_cast<double>(rule.d);
      const double root = rule.normalise ? root_of(rule, x.data(), mean) : 1.0;
      for (int64_t j = 0; j < rule.d; ++j) {
        y[begin + j] =
            (x[static_cast<size_t>(j)] - mean) / root * rule.w[static_cast<size_t>(begin + j) % rule.w.size()];
      }
    }
  };
}

void offer_eps(const Case& c, Sink& out) {
  const double right = right_rule(c).eps;
  for (const double eps : {1e-5, 1e-6, 0.0, 1e-12, 1e-8, 1e-7, 1e-4, 1e-3, 1e-2}) {
    if (std::abs(eps - right) <= 1e-6 * right) continue;
    NormRule rule = right_rule(c);
    rule.eps = eps;
    out.add_rows(fmt::format("RMSNorm adds eps {:g} in place of the file's {:g}", eps, right), norm_with(c, rule));
  }
}

void offer_eps_outside(const Case& c, Sink& out) {
  NormRule rule = right_rule(c);
  rule.eps_outside = true;
  out.add_rows(fmt::format("eps {:g} is added to the root of the mean square; it belongs inside the root", rule.eps),
               norm_with(c, rule));
}

void offer_layer_norm(const Case& c, Sink& out) {
  NormRule rule = right_rule(c);
  rule.remove_mean = true;
  out.add_rows("LayerNorm in place of RMSNorm: the mean is taken off first; RMSNorm keeps it", norm_with(c, rule));
}

void offer_weight_shift(const Case& c, Sink& out) {
  for (const double shift : {1.0, -1.0}) {
    NormRule rule = right_rule(c);
    for (double& w : rule.w) w += shift;
    out.add_rows(shift > 0 ? "the norm multiplies by 1 + weight, where the file's weight has the 1 in it"
                           : "the norm multiplies by weight - 1: the file's 1 + weight is taken apart "
                             "once too often",
                 norm_with(c, rule));
  }
}

void offer_weight_missing(const Case& c, Sink& out) {
  if (c.record<ops::RmsNorm>().w == ops::kNone) return;
  NormRule rule = right_rule(c);
  rule.w.assign(rule.w.size(), 1.0);
  out.add_rows("the norm is not multiplied by its weight", norm_with(c, rule));
}

void offer_not_normalised(const Case& c, Sink& out) {
  NormRule rule = right_rule(c);
  rule.normalise = false;
  out.add_rows("the input is multiplied by the norm's weight but never divided by its root mean square",
               norm_with(c, rule));
}

// What another op announced is not what this one read: a copy between devices that was torn.
void offer_torn(const Case& c, Sink& out) {
  const int64_t width = c.failed.width;
  for (const int64_t part : {2, 4, 8}) {
    for (const bool last : {true, false}) {
      if (width % part != 0) continue;
      NormRule rule = right_rule(c);
      rule.lost_begin = last ? width - width / part : 0;
      rule.lost_end = last ? width : width / part;
      out.add_rows(fmt::format("the {} 1/{} of every row it reads is lost, though the op before "
                               "wrote it: a torn copy",
                               last ? "last" : "first", part),
                   norm_with(c, rule));
    }
  }
}

void offer_sum(const Case& c, Sink& out) {
  NormRule rule = right_rule(c);
  rule.sum_not_mean = true;
  out.add_rows(fmt::format("normalised by the sum of squares in place of their mean over {} elements", rule.d),
               norm_with(c, rule));
}

// The length of the runs: whole rows, heads, and their halves.
void offer_length(const Case& c, Sink& out) {
  const NormRule right = right_rule(c);
  const ops::Attention* attention = c.attention();
  const int64_t head_dim = attention != nullptr ? attention->head_dim : 0;
  for (const int64_t d : {c.failed.width, head_dim, right.d / 2}) {
    if (d <= 0 || d == right.d || c.failed.width % d != 0) continue;
    NormRule rule = right;
    rule.d = d;
    out.add_rows(fmt::format("normalised over runs of {} elements where the norm's run is {}", d, right.d),
                 norm_with(c, rule));
  }
}

void offer_weight_rounded(const Case& c, Sink& out) {
  for (const bool half : {true, false}) {
    NormRule rule = right_rule(c);
    for (double& w : rule.w) w = half ? as_f16(w) : as_bf16(w);
    out.add_rows(fmt::format("the norm's weight is rounded to {}; the file has f32", half ? "f16" : "bf16"),
                 norm_with(c, rule));
  }
}

void offer_other_weight(const Case& c, Sink& out) {
  const auto& op = c.record<ops::RmsNorm>();
  if (op.w == ops::kNone) return;
  const size_t length = right_rule(c).w.size();
  std::vector<ops::WeightId> tried = {op.w};
  for (const ops::Op& other : c.plan.ops) {
    const auto* norm = other.as<ops::RmsNorm>();
    if (norm == nullptr || norm->w == ops::kNone || std::find(tried.begin(), tried.end(), norm->w) != tried.end())
      continue;
    tried.push_back(norm->w);
    NormRule rule = right_rule(c);
    rule.w = c.vector(norm->w);
    if (rule.w.size() != length) continue;
    out.add_rows(
        fmt::format("{} reads the weight {} in place of {}", c.op().name, c.weight_name(norm->w), c.weight_name(op.w)),
        norm_with(c, rule));
  }
}

constexpr Entry kEntries[] = {
    {"norm_eps", "C48", offer_eps},
    {"norm_layer_norm", "R14", offer_layer_norm},
    {"norm_eps_outside", "C48", offer_eps_outside},
    {"norm_weight_plus_one", "", offer_weight_shift},
    {"norm_weight_missing", "", offer_weight_missing},
    {"norm_not_normalised", "", offer_not_normalised},
    {"norm_sum_for_mean", "", offer_sum},
    {"norm_length", "", offer_length},
    {"norm_torn_input", "C44", offer_torn},
    {"norm_weight_rounded", "", offer_weight_rounded},
    {"norm_other_weight", "", offer_other_weight},
};

}  // namespace

std::span<const Entry> norm_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
