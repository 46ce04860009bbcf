// See judge.h.
#include "bounds/judge.h"

#include <cmath>
#include <vector>

#include "bounds/rounding.h"

namespace assay::bounds {
namespace {

double square(double x) { return x * x; }

void take(Worst& worst, double ratio, int64_t row, int64_t column, double found, double expected, double bound) {
  if (ratio > worst.ratio) worst = {ratio, row, column, found, expected, bound};
}

// One row; columns count from the output's first.
void judge_row(const Judged& j, int64_t row, Tally& tally) {
  const Expected& e = j.expected;
  const bool has_declared = !e.declared_y.empty();
  for (int64_t column = 0; column < j.n_columns; ++column) {
    const auto i = static_cast<size_t>(row * j.n_columns + column);
    const double found = j.found[static_cast<size_t>(row * j.width + j.first_column + column)];
    double ratio = excess(found, e.y[i], e.bound[i]);
    const bool finite = std::isfinite(found);
    take(tally.worst, ratio, row, j.first_column + column, found, e.y[i], e.bound[i]);
    if (has_declared) {
      const double again = excess(found, e.declared_y[i], e.declared_bound[i]);
      take(tally.worst, again, row, j.first_column + column, found, e.declared_y[i], e.declared_bound[i]);
      ratio = std::max(ratio, again);
    }
    tally.n_outside += ratio > 1 ? 1 : 0;
    if (!finite) {
      ++tally.n_non_finite;
      continue;
    }
    tally.found += square(found);
    tally.largest = std::max(tally.largest, std::fabs(found));
    if (!std::isfinite(e.y[i]) || !std::isfinite(e.bound[i])) continue;
    tally.error += square(found - e.y[i]);
    tally.bound += square(e.bound[i]);
    tally.expected += square(e.y[i]);
    if (has_declared) {
      tally.declared_error += square(found - e.declared_y[i]);
      tally.declared_bound += square(e.declared_bound[i]);
    }
    if (!j.chain.empty() && std::isfinite(j.chain[i])) {
      tally.chain_error += square(found - j.chain[i]);
      tally.chain += square(j.chain[i]);
    }
  }
}

// ||a|| / ||b||, both given as squares.
double relative(double a, double b) {
  return b > 0 ? std::sqrt(a / b) : a > 0 ? std::numeric_limits<double>::infinity() : 0;
}

}  // namespace

void Tally::add(const Tally& other) noexcept {
  n_values += other.n_values;
  n_outside += other.n_outside;
  n_non_finite += other.n_non_finite;
  if (other.worst.ratio > worst.ratio) worst = other.worst;
  error += other.error;
  bound += other.bound;
  expected += other.expected;
  declared_error += other.declared_error;
  declared_bound += other.declared_bound;
  chain_error += other.chain_error;
  chain += other.chain;
  found += other.found;
  largest = std::max(largest, other.largest);
  has_declared = has_declared || other.has_declared;
  has_chain = has_chain || other.has_chain;
}

void Tally::fill(OpFigures& figures) const {
  figures.n_values = n_values;
  figures.n_outside = n_outside;
  figures.n_non_finite = n_non_finite;
  figures.worst_ratio = std::max(worst.ratio, 0.0);
  figures.local_error = relative(error, expected);
  figures.bound = relative(bound, expected);
  if (has_declared) {
    figures.declared_error = relative(declared_error, expected);
    figures.declared_bound = relative(declared_bound, expected);
  }
  figures.cumulative_error = has_chain ? relative(chain_error, chain) : -1;
  figures.rms = n_values > n_non_finite ? std::sqrt(found / static_cast<double>(n_values - n_non_finite)) : 0;
  figures.largest = largest;
}

Tally judge(const Judged& judged, base::ThreadPool& pool) {
  std::vector<Tally> rows(
      static_cast<size_t>(judged.n_rows));  // added in order, so that figures do not depend on the threads
  pool.run(judged.n_rows, [&](int64_t row, int) { judge_row(judged, row, rows[static_cast<size_t>(row)]); });
  Tally all;
  for (const Tally& row : rows) all.add(row);
  all.n_values = judged.n_rows * judged.n_columns;
  all.has_declared = !judged.expected.declared_y.empty();
  all.has_chain = !judged.chain.empty();
  return all;
}

}  // namespace assay::bounds
