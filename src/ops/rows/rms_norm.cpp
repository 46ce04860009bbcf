// Reference of rms_norm.h.
#include "ops/rows/rms_norm.h"

#include <cmath>
#include <string>
#include <vector>

#include "num/lanes.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/float64.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void rms_norm_ref(const float* x, const float* w, float eps, int64_t d, float* y) noexcept {
  num::Lanes32 sum;  // element j goes to lane j % 32
  for (int64_t j = 0; j < d; ++j) sum.fma(j, x[j], x[j]);
  const float r = 1.0f / std::sqrt(sum.fold() / static_cast<float>(d) + eps);
  for (int64_t j = 0; j < d; ++j) y[j] = w == nullptr ? x[j] * r : (x[j] * r) * w[j];
}

void RmsNorm::check(const CheckScope& s) const {
  s.expect_vector(w, d, "norm weights");
  if (d <= 0) s.refuse("runs of " + std::to_string(d) + " elements");
  s.expect(s.width(x) % d, 0, "elements left over after whole runs");
  s.expect(s.width(y), s.width(x), "columns");
}

void RmsNorm::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.runs_of(x, d);
  const ValueId own_x = s.own_or_whole(x, ranges);
  const WeightId own_w = s.whole_weight(w);
  const ValueId own_y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return RmsNorm{own_x, own_w, eps, d, own_y}; });
}

OpWork RmsNorm::work(const WorkScope& s) const { return {.bytes = s.n_rows(y) > 0 ? s.weight_bytes(w) : 0}; }

void RmsNorm::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < rows.width(y); j += d)
      rms_norm_ref(rows.column(x, i, j), rows.small(w), eps, d, rows.column(y, i, j));
  }
}

void RmsNorm::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const auto n = static_cast<size_t>(d);
  std::vector<double> weights;
  if (w != kNone) weights.assign(rows.small(w), rows.small(w) + d);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < rows.width(y); j += d)
      rms_norm64({rows.row(x, i) + j, n}, weights, static_cast<double>(eps), {rows.row(y, i) + j, n});
  }
}

}  // namespace assay::ops
