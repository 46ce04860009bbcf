// See sparse_gate.h.
#include "ops/linear/sparse_gate.h"

#include <cmath>

#include "num/lanes.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void SparseGate::check(const CheckScope& s) const {
  s.expect(s.width(y), s.width(x), "columns");
  if (s.width(x) < 1 || !std::isfinite(factor)) s.refuse("a cut of this kind");
}

void SparseGate::shard(ShardScope& s) const {
  SparseGate part = *this;
  part.x = s.whole_of(x), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork SparseGate::work(const WorkScope&) const { return {}; }

void SparseGate::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const auto by = static_cast<float>(factor);
  const int64_t d = rows.width(y);
  for (int64_t i = begin; i < end; ++i) {
    const float* from = rows.row(x, i);
    num::Lanes32 sum, squares;
    for (int64_t j = 0; j < d; ++j) sum.add(j, from[j]);
    const float mean = sum.fold() / static_cast<float>(d);
    for (int64_t j = 0; j < d; ++j) squares.fma(j, from[j] - mean, from[j] - mean);
    const float cutoff = num::fma(std::sqrt(squares.fold() / static_cast<float>(d)), by, mean);
    for (int64_t j = 0; j < d; ++j) {
      const float above = from[j] - cutoff;
      rows.row(y, i)[j] = above < 0.0f ? 0.0f : above;  // a NaN stays one
    }
  }
}

void SparseGate::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const int64_t d = rows.width(y);
  for (int64_t i = begin; i < end; ++i) {
    const double* from = rows.row(x, i);
    double mean = 0, squares = 0;
    for (int64_t j = 0; j < d; ++j) mean += from[j] / static_cast<double>(d);
    for (int64_t j = 0; j < d; ++j) squares += (from[j] - mean) * (from[j] - mean);
    const double cutoff = mean + factor * std::sqrt(squares / static_cast<double>(d));
    for (int64_t j = 0; j < d; ++j) {
      const double above = from[j] - cutoff;
      rows.row(y, i)[j] = above < 0 ? 0 : above;
    }
  }
}

}  // namespace assay::ops
