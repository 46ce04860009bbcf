// See clamp.h.
#include "ops/rows/clamp.h"

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void Clamp::check(const CheckScope& s) const {
  s.expect(s.width(y), s.width(x), "columns");
  if (!(static_cast<float>(limit) > 0)) s.refuse("a limit of 0 or below");
}

void Clamp::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.ranges(x);
  Clamp part = *this;
  part.x = s.own(x), part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork Clamp::work(const WorkScope&) const { return {}; }

void Clamp::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const auto most = static_cast<float>(limit);
  const float* from = rows.row(x, begin);
  float* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i)
    to[i] = from[i] > most ? most : from[i] < -most ? -most : from[i];
}

void Clamp::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const double* from = rows.row(x, begin);
  double* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i)
    to[i] = from[i] > limit ? limit : from[i] < -limit ? -limit : from[i];
}

}  // namespace assay::ops
