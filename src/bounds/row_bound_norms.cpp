// See row_bound.h: ops that divide by what all elements of a row make up.
#include <algorithm>
#include <cmath>
#include <utility>

#include "bounds/row_bound.h"
#include "ops/plan/float64.h"

namespace assay::bounds {

// The sum of squares s carries n_s = ceil(d / 32) + 5 roundings (any order: d), all terms
// positive; / d and + eps one each, the root halves them all; root, 1 / root and two products one
// each: gamma(n_s / 2 + 5). An error dx moves s / d by at most (2 sum |x| dx + sum dx^2) / d.
void bound_row(const RowScope& s, const ops::RmsNorm& op, int64_t i, Out out) {
  const std::vector<double>& w = s.weights;  // none: all 1
  const Row x = row_of(s.in.a, i);
  const auto d = at(op.d);
  const double eps = static_cast<double>(op.eps), count = static_cast<double>(op.d);
  const double n_sum = s.declared.own_sums ? std::ceil(count / 32) + 5 : count;
  for (size_t begin = 0; begin < x.values.size(); begin += d) {
    ops::rms_norm64(x.values.subspan(begin, d), w, eps, out.y.subspan(begin, d));
    double squares = 0, moved = 0;
    for (size_t j = begin; j < begin + d; ++j) {
      squares += x.values[j] * x.values[j];
      moved += x.e(j) * (2 * std::fabs(x.values[j]) + x.e(j));
    }
    const double mean = squares / count + eps, r = 1 / std::sqrt(mean);
    const double t = moved / count / mean;
    // r' = r / sqrt(1 +- t); it never exceeds 1 / sqrt(eps)
    const double off = moved == 0 ? 0 : t < 0.5 ? 1 / std::sqrt(1 - t) - 1 : std::sqrt(mean / eps);
    const double rounding = gamma(n_sum / 2 + 6, s.u) + gamma(count / 2 + 6, kUnitDouble) + count * 0x1p-149 / mean;
    for (size_t j = begin; j < begin + d; ++j) {
      const double from_x =
          (w.empty() ? 1.0 : std::fabs(w[j - begin])) * r * (x.e(j) * (1 + off) + std::fabs(x.values[j]) * off);
      out.bound[j] = from_x + rounding * (std::fabs(out.y[j]) + from_x) + s.tiny;
    }
  }
}

// The cut is off by the mean's and the deviation's roundings, as in LayerNorm; max(x - c, 0) moves no further than x
// and c.
void bound_row(const RowScope& s, const ops::SparseGate& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  const double count = static_cast<double>(out.y.size()),
               n_sum = s.declared.own_sums ? std::ceil(count / 32) + 5 : count;
  double mean = 0, magnitude = 0, error = 0, squares = 0;
  for (size_t j = 0; j < out.y.size(); ++j)
    mean += x.values[j] / count, magnitude += std::fabs(x.values[j]) / count, error += x.e(j) / count;
  const double of_mean = gamma(n_sum + 2, s.u) * (magnitude + error) + error;
  double off = 0;  // the largest that an element of x - mean is off: so is their root mean square
  for (size_t j = 0; j < out.y.size(); ++j) {
    squares += (x.values[j] - mean) * (x.values[j] - mean);
    off = std::max(off, x.e(j) + of_mean + s.u * std::fabs(x.values[j] - mean));
  }
  const double deviation = std::sqrt(squares / count),
               of_deviation = off + gamma(n_sum / 2 + 3, s.u) * (deviation + off);
  const double cut = mean + op.factor * deviation;
  const double of_cut = of_mean + std::fabs(op.factor) * of_deviation +
                        gamma(3, s.u) * (std::fabs(mean) + std::fabs(op.factor) * (deviation + of_deviation));
  for (size_t j = 0; j < out.y.size(); ++j) {
    out.y[j] = std::max(x.values[j] - cut, 0.0);
    out.bound[j] = x.e(j) + of_cut + s.u * (std::fabs(x.values[j] - cut) + x.e(j) + of_cut) + s.tiny;
  }
}

// A root mean square moves by the largest dx at most, and by n_s / 2 + 2 roundings.
void bound_row(const RowScope& s, const ops::MatchMagnitude& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i), like = row_of(s.in.b, i);
  const double count = static_cast<double>(out.y.size()),
               n_sum = s.declared.own_sums ? std::ceil(count / 32) + 5 : count;
  const auto root = [&](const Row& row) {
    double squares = 0, off = 0;
    for (size_t j = 0; j < out.y.size(); ++j) squares += row.values[j] * row.values[j], off = std::max(off, row.e(j));
    return std::pair(std::sqrt(squares / count), off);
  };
  const auto [own, of_own] = root(x);
  const auto [other, of_other] = root(like);
  const double divisor = std::max(own, op.eps), by = other / divisor, least = std::max(divisor - of_own, op.eps);
  const double of_by = (of_other + by * of_own) / least;
  for (size_t j = 0; j < out.y.size(); ++j) {
    out.y[j] = x.values[j] * by;
    const double moved = x.e(j) * (by + of_by) + std::fabs(x.values[j]) * of_by;
    out.bound[j] = moved + gamma(n_sum + 6, s.u) * (std::fabs(out.y[j]) + moved) + s.tiny;
  }
}

// As RMSNorm, of a sum in place of a mean.
void bound_row(const RowScope& s, const ops::L2Norm& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  const auto d = at(op.d);
  const double eps = static_cast<double>(op.eps), count = static_cast<double>(op.d);
  const double n_sum = s.declared.own_sums ? std::ceil(count / 32) + 5 : count;
  for (size_t begin = 0; begin < x.values.size(); begin += d) {
    double sum = eps, moved = 0;
    for (size_t j = begin; j < begin + d; ++j) {
      sum += x.values[j] * x.values[j];
      moved += x.e(j) * (2 * std::fabs(x.values[j]) + x.e(j));
    }
    const double r = 1 / std::sqrt(sum), t = moved / sum;
    const double off = moved == 0 ? 0 : t < 0.5 ? 1 / std::sqrt(1 - t) - 1 : eps > 0 ? std::sqrt(sum / eps) : HUGE_VAL;
    const double rounding = gamma(n_sum / 2 + 5, s.u) + gamma(count / 2 + 5, kUnitDouble) + count * 0x1p-149 / sum;
    for (size_t j = begin; j < begin + d; ++j) {
      const double from_x = r * (x.e(j) * (1 + off) + std::fabs(x.values[j]) * off);
      out.y[j] = x.values[j] * r;
      out.bound[j] = from_x + rounding * (std::fabs(out.y[j]) + from_x) + s.tiny;
    }
  }
}

// The mean carries n_s + 1 roundings of magnitudes |x|; what it is off, and what x is, moves every c = x - m; the rest
// as in RMSNorm.
void bound_row(const RowScope& s, const ops::LayerNorm& op, int64_t i, Out out) {
  const Row x = row_of(s.in.a, i);
  const auto d = at(op.d);
  const double count = static_cast<double>(op.d), eps = static_cast<double>(op.eps);
  const double n_sum = s.declared.own_sums ? std::ceil(count / 32) + 5 : count;
  for (size_t begin = 0; begin < x.values.size(); begin += d) {
    double mean = 0, magnitude = 0, error = 0, squares = 0, moved = 0;
    for (size_t j = begin; j < begin + d; ++j)
      mean += x.values[j] / count, magnitude += std::fabs(x.values[j]) / count, error += x.e(j) / count;
    const double of_mean = gamma(n_sum + 1, s.u) * (magnitude + error) + error + gamma(count, kUnitDouble) * magnitude;
    const auto off_c = [&](size_t j) { return (x.e(j) + of_mean) * (1 + s.u) + s.u * std::fabs(x.values[j] - mean); };
    for (size_t j = begin; j < begin + d; ++j) {
      const double c = std::fabs(x.values[j] - mean);
      squares += c * c;
      moved += off_c(j) * (2 * c + off_c(j));
    }
    const double variance = squares / count + eps, r = 1 / std::sqrt(variance), t = moved / count / variance;
    const double off = moved == 0 ? 0 : t < 0.5 ? 1 / std::sqrt(1 - t) - 1 : std::sqrt(variance / eps);
    const double rounding = gamma(n_sum / 2 + 6, s.u) + gamma(count, kUnitDouble) + count * 0x1p-149 / variance;
    for (size_t j = begin; j < begin + d; ++j) {
      const double w = s.weights.empty() ? 1.0 : s.weights[op.by_column ? j : j - begin];
      const double b = s.biases.empty() ? 0.0 : s.biases[op.by_column ? j : j - begin];
      const double c = x.values[j] - mean, by_w = std::fabs(w) * r;
      const double from_x = by_w * (off_c(j) * (1 + off) + std::fabs(c) * off), product = by_w * std::fabs(c);
      out.y[j] = c * r * w + b;
      out.bound[j] = from_x + rounding * (product + from_x) + s.u * (std::fabs(out.y[j]) + from_x) + s.tiny;
    }
  }
}

}  // namespace assay::bounds
