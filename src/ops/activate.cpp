// See activate.h.
#include "ops/activate.h"

#include "ops/activation.h"
#include "ops/check_scope.h"
#include "ops/host_rows.h"
#include "ops/shard_scope.h"
#include "ops/work.h"

namespace assay::ops {

void Activate::check(const CheckScope& s) const {
  s.expect(s.width(y), s.width(x), "columns");
}

void Activate::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.ranges(x);
  Activate part = *this;
  part.x = s.own(x), part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork Activate::work(const WorkScope&) const { return {}; }

void Activate::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const float* from = rows.row(x, begin);
  float* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) to[i] = activate(activation, from[i]);
}

void Activate::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const auto function = traits_of(activation).f64;
  const double* from = rows.row(x, begin);
  double* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) to[i] = function(from[i]);
}

}  // namespace assay::ops
