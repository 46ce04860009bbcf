// See scale_by_position.h.
#include "ops/rows/scale_by_position.h"

#include <cmath>

#include "num/math64.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

double position_scale(double beta, int64_t period, int64_t offset, int64_t position) noexcept {
  return 1.0 + beta * num::log64(1.0 + static_cast<double>((position + offset) / period));
}

void ScaleByPosition::check(const CheckScope& s) const {
  s.expect(s.width(y), s.width(x), "columns");
  if (period < 1 || offset < 0 || !std::isfinite(beta)) s.refuse("a scale by positions of this kind");
}

void ScaleByPosition::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.ranges(x);
  ScaleByPosition part = *this;
  part.x = s.own(x), part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork ScaleByPosition::work(const WorkScope&) const { return {}; }

void ScaleByPosition::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  for (int64_t i = begin; i < end; ++i) {
    const auto by = static_cast<float>(position_scale(beta, period, offset, rows.position_of(y, i)));
    for (int64_t j = 0; j < rows.width(y); ++j) rows.row(y, i)[j] = rows.row(x, i)[j] * by;
  }
}

void ScaleByPosition::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  for (int64_t i = begin; i < end; ++i) {
    const double by = position_scale(beta, period, offset, rows.position_of(y, i));
    for (int64_t j = 0; j < rows.width(y); ++j) rows.row(y, i)[j] = rows.row(x, i)[j] * by;
  }
}

}  // namespace assay::ops
