// See softcap.h.
#include "ops/rows/softcap.h"

#include "num/math.h"
#include "num/math64.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void softcap_ref(const float* x, float cap, int64_t n, float* y) noexcept {
  for (int64_t j = 0; j < n; ++j) y[j] = num::softcap(x[j], cap);
}

void Softcap::check(const CheckScope& s) const {
  s.expect(s.width(y), s.width(x), "columns");
  if (!(static_cast<float>(cap) > 0)) s.refuse("a cap of 0 or below");
}

void Softcap::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.ranges(x);
  Softcap part = *this;
  part.x = s.own(x), part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork Softcap::work(const WorkScope&) const { return {}; }

void Softcap::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  softcap_ref(rows.row(x, begin), static_cast<float>(cap), (end - begin) * rows.width(y), rows.row(y, begin));
}

void Softcap::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const double* from = rows.row(x, begin);
  double* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) to[i] = cap * num::tanh64(from[i] / cap);
}

}  // namespace assay::ops
