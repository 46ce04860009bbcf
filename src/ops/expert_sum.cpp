// See expert_sum.h.
#include "ops/expert_sum.h"

#include "num/lanes.h"
#include "ops/check_scope.h"
#include "ops/host_rows.h"
#include "ops/shard_scope.h"
#include "ops/work.h"

namespace assay::ops {

void ExpertSum::check(const CheckScope& s) const {
  s.expect(s.width(routes), 2 * n_used, "columns of the routes");
  s.expect(s.width(x), n_used * s.width(y), "columns");
}

void ExpertSum::shard(ShardScope& s) const {
  ExpertSum part = *this;
  part.x = s.whole_of(x), part.routes = s.whole_of(routes), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork ExpertSum::work(const WorkScope&) const { return {}; }

void ExpertSum::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const int64_t d = rows.width(y);
  for (int64_t t = begin; t < end; ++t) {
    const float *from = rows.row(x, t), *weight = rows.row(routes, t);
    float* to = rows.row(y, t);
    for (int64_t j = 0; j < d; ++j) {
      float sum = weighted ? weight[0] * from[j] : from[j];
      for (int64_t i = 1; i < n_used; ++i) sum = weighted ? num::fma(weight[i], from[i * d + j], sum) : sum + from[i * d + j];
      to[j] = sum;
    }
  }
}

void ExpertSum::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const int64_t d = rows.width(y);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < d; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < n_used; ++i) sum += (weighted ? rows.row(routes, t)[i] : 1.0) * rows.row(x, t)[i * d + j];
      rows.row(y, t)[j] = sum;
    }
  }
}

}  // namespace assay::ops
