// See expert_scale.h.
#include "ops/linear/expert_scale.h"

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

template <class T>
void scale_rows(const ExpertScale& op, const HostRows<T>& rows, int64_t begin, int64_t end) noexcept {
  const int64_t d = rows.width(op.x);
  for (int64_t pair = begin; pair < end; ++pair) {
    const int64_t t = pair / op.n_used;
    const T weight = rows.row(op.routes, t)[pair % op.n_used];
    for (int64_t j = 0; j < d; ++j) rows.row(op.y, pair)[j] = weight * rows.row(op.x, t)[j];
  }
}

}  // namespace

void ExpertScale::check(const CheckScope& s) const {
  s.expect(s.width(routes), 2 * n_used, "columns of the routes");
  s.expect(s.width(y), s.width(x), "columns");
  s.expect_rows(x, s.domain(routes));
  s.expect_rows(y, s.domain(routes).routed(n_used));
}

void ExpertScale::shard(ShardScope& s) const {
  ExpertScale part = *this;
  part.x = s.whole_of(x), part.routes = s.whole_of(routes), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork ExpertScale::work(const WorkScope&) const { return {}; }
void ExpertScale::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  scale_rows(*this, rows, begin, end);
}
void ExpertScale::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  scale_rows(*this, rows, begin, end);
}

}  // namespace assay::ops
