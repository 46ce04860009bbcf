// See expert_sum.h.
#include "ops/linear/expert_sum.h"

#include "num/lanes.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void expert_sum_ref(const float* x, const float* weights, int64_t n_used, int64_t d, float* y) noexcept {
  for (int64_t j = 0; j < d; ++j) {
    float sum = weights != nullptr ? weights[0] * x[j] : x[j];
    for (int64_t i = 1; i < n_used; ++i)
      sum = weights != nullptr ? num::fma(weights[i], x[i * d + j], sum) : sum + x[i * d + j];
    y[j] = sum;
  }
}

void ExpertSum::check(const CheckScope& s) const {
  s.expect(s.width(routes), 2 * n_used, "columns of the routes");
  s.expect(s.width(x), s.width(y), "columns");
  s.expect_rows(y, s.domain(routes));
  s.expect_rows(x, s.domain(routes).routed(n_used));
}

void ExpertSum::shard(ShardScope& s) const {
  ExpertSum part = *this;
  part.x = s.whole_of(x), part.routes = s.whole_of(routes), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork ExpertSum::work(const WorkScope&) const { return {}; }

void ExpertSum::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  for (int64_t t = begin; t < end; ++t)
    expert_sum_ref(rows.row(x, t * n_used), weighted ? rows.row(routes, t) : nullptr, n_used, rows.width(y),
                   rows.row(y, t));
}

void ExpertSum::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const int64_t d = rows.width(y);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < d; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < n_used; ++i)
        sum += (weighted ? rows.row(routes, t)[i] : 1.0) * rows.row(x, t * n_used + i)[j];
      rows.row(y, t)[j] = sum;
    }
  }
}

}  // namespace assay::ops
