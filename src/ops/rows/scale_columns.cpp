// See scale_columns.h.
#include "ops/rows/scale_columns.h"

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

template <class T>
void scale_column_rows(const ScaleColumns& op, const HostRows<T>& rows, int64_t begin, int64_t end) noexcept {
  const int64_t n_factors = rows.plan->weights[static_cast<size_t>(op.w)].view.shape.elements(),
                n = rows.width(op.y) / n_factors;
  const float* w = rows.small(op.w);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < rows.width(op.y); ++j)
      rows.row(op.y, i)[j] = rows.row(op.x, i)[j] * static_cast<T>(w[j / n]);
  }
}

}  // namespace

void ScaleColumns::check(const CheckScope& s) const {
  s.expect_vector(w, s.elements(w), "factors");
  if (s.elements(w) < 1) s.refuse("no factors");
  s.expect(s.width(x) % s.elements(w), 0, "columns left over after whole runs of a factor");
  s.expect(s.width(y), s.width(x), "columns");
}

void ScaleColumns::shard(ShardScope& s) const {
  ScaleColumns part = *this;
  part.x = s.whole_of(x), part.w = s.whole_weight(w), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork ScaleColumns::work(const WorkScope& s) const { return {.bytes = s.n_rows(y) > 0 ? s.weight_bytes(w) : 0}; }

void ScaleColumns::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  scale_column_rows(*this, rows, begin, end);
}
void ScaleColumns::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  scale_column_rows(*this, rows, begin, end);
}

}  // namespace assay::ops
