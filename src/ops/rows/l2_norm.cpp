// See l2_norm.h.
#include "ops/rows/l2_norm.h"

#include <cmath>
#include <string>

#include "num/lanes.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void L2Norm::check(const CheckScope& s) const {
  if (d <= 0) s.refuse("runs of " + std::to_string(d) + " elements");
  s.expect(s.width(x) % d, 0, "elements left over after whole runs");
  s.expect(s.width(y), s.width(x), "columns");
  if (!(eps >= 0)) s.refuse("an epsilon below 0");
}

void L2Norm::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.runs_of(x, d);
  L2Norm part = *this;
  part.x = s.own_or_whole(x, ranges), part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork L2Norm::work(const WorkScope&) const { return {}; }

void L2Norm::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t first = 0; first < rows.width(y); first += d) {
      const float* from = rows.column(x, i, first);
      float* to = rows.column(y, i, first);
      num::Lanes32 sum;
      for (int64_t j = 0; j < d; ++j) sum.fma(j, from[j], from[j]);
      const float r = 1.0f / std::sqrt(sum.fold() + eps);
      for (int64_t j = 0; j < d; ++j) to[j] = from[j] * r;
    }
  }
}

void L2Norm::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t first = 0; first < rows.width(y); first += d) {
      const double* from = rows.row(x, i) + first;
      double sum = static_cast<double>(eps);
      for (int64_t j = 0; j < d; ++j) sum += from[j] * from[j];
      const double r = 1 / std::sqrt(sum);
      for (int64_t j = 0; j < d; ++j) rows.row(y, i)[first + j] = from[j] * r;
    }
  }
}

}  // namespace assay::ops
