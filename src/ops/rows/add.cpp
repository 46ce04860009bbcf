// Reference of add.h.
#include "ops/rows/add.h"

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void add_ref(const float* a, const float* b, int64_t n, float* y) noexcept {
  for (int64_t j = 0; j < n; ++j) y[j] = a[j] + b[j];
}

void Add::check(const CheckScope& s) const {
  s.expect(s.width(a), s.width(y), "columns");
  s.expect(s.width(b), s.width(y), "columns");
}

void Add::shard(ShardScope& s) const {
  const ValueId own_a = s.whole_of(a), own_b = s.whole_of(b), own_y = s.make(y, {});
  s.enter({}, [&](size_t) { return Add{own_a, own_b, own_y}; });
}

OpWork Add::work(const WorkScope&) const { return {}; }

void Add::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  add_ref(rows.row(a, begin), rows.row(b, begin), (end - begin) * rows.width(y), rows.row(y, begin));
}

void Add::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const double *from_a = rows.row(a, begin), *from_b = rows.row(b, begin);
  double* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) to[i] = from_a[i] + from_b[i];
}

}  // namespace assay::ops
