// See clamped_gate.h.
#include "ops/rows/clamped_gate.h"

#include <cmath>

#include "num/activations.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"
#include "ops/rows/activation.h"

namespace assay::ops {

void clamped_gate_ref(const float* gate, const float* up, float alpha, float limit, int64_t n, float* y) noexcept {
  for (int64_t j = 0; j < n; ++j) {
    const float g = limit < gate[j] ? limit : gate[j];
    const float below = limit < up[j] ? limit : up[j], u = -limit > below ? -limit : below;
    y[j] = (g * num::sigmoid(alpha * g)) * (u + 1.0f);
  }
}

void ClampedGate::check(const CheckScope& s) const {
  s.expect(s.width(gate), s.width(y), "columns");
  s.expect(s.width(up), s.width(y), "columns");
  if (!std::isfinite(alpha) || !(static_cast<float>(limit) > 0)) s.refuse("a clamped gate of this kind");
}

void ClampedGate::shard(ShardScope& s) const {
  const bool alike = !s.ranges(gate).empty() && !s.ranges(up).empty();
  const ColumnRanges ranges = alike ? s.ranges(gate) : ColumnRanges{};
  ClampedGate part = *this;
  part.gate = alike ? s.own(gate) : s.whole_of(gate), part.up = alike ? s.own(up) : s.whole_of(up),
  part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork ClampedGate::work(const WorkScope&) const { return {}; }

void ClampedGate::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  clamped_gate_ref(rows.row(gate, begin), rows.row(up, begin), static_cast<float>(alpha), static_cast<float>(limit),
                   (end - begin) * rows.width(y), rows.row(y, begin));
}

void ClampedGate::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const double *from_gate = rows.row(gate, begin), *from_up = rows.row(up, begin);
  double* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) {
    const double g = from_gate[i] > limit ? limit : from_gate[i];
    const double u = from_up[i] > limit ? limit : from_up[i] < -limit ? -limit : from_up[i];
    to[i] = g * sigmoid64(alpha * g) * (u + 1);
  }
}

}  // namespace assay::ops
