// See scale.h.
#include "ops/rows/scale.h"

#include <cmath>

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void Scale::check(const CheckScope& s) const {
  s.expect(s.width(y), s.width(x), "columns");
  if (!std::isfinite(factor)) s.refuse("a scale that is no number");
}

void Scale::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.ranges(x);
  Scale part = *this;
  part.x = s.own(x), part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork Scale::work(const WorkScope&) const { return {}; }

void Scale::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const auto by = static_cast<float>(factor);
  const float* from = rows.row(x, begin);
  float* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) to[i] = from[i] * by;
}

void Scale::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const double* from = rows.row(x, begin);
  double* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) to[i] = from[i] * factor;
}

}  // namespace assay::ops
