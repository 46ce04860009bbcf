// Reference of rope.h, and the tables that every device uses.
#include "ops/attention/rope.h"

#include <string>

#include "num/lanes.h"
#include "num/math64.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/float64.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void rope_angles(const RopeSpec& spec, int64_t position, float* cos, float* sin) noexcept {
  for (size_t i = 0; i < spec.inverse_frequency.size(); ++i) {
    const double angle = static_cast<double>(position) * spec.inverse_frequency[i];
    cos[i] = static_cast<float>(num::cos64(angle) * spec.magnitude);
    sin[i] = static_cast<float>(num::sin64(angle) * spec.magnitude);
  }
}

void rope_ref(const float* x, const float* cos, const float* sin, int64_t dim, bool interleaved, int64_t head_dim,
              float* y) noexcept {
  for (int64_t i = 0; i < dim / 2; ++i) {
    const int64_t a = interleaved ? 2 * i : i;
    const int64_t b = interleaved ? 2 * i + 1 : i + dim / 2;
    const float x_a = x[a], x_b = x[b];
    y[a] = num::fma(x_a, cos[i], -(x_b * sin[i]));
    y[b] = num::fma(x_a, sin[i], x_b * cos[i]);
  }
  for (int64_t j = dim; j < head_dim; ++j) y[j] = x[j];
}

void Rope::check(const CheckScope& s) const {
  if (s.domain(x).is_routed()) s.refuse("a rotation of routed rows");
  s.expect(s.width(x), n_heads * head_dim, "columns");
  s.expect(s.width(y), s.width(x), "columns");
  const RopeSpec& spec = s.rope(rope);
  if (spec.dim < 0 || spec.dim > head_dim || spec.dim % 2 != 0)
    s.refuse("rotation of " + std::to_string(spec.dim) + " elements");
  s.expect(static_cast<int64_t>(spec.inverse_frequency.size()), spec.dim / 2, "frequencies");
}

void Rope::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.runs_of(x, head_dim);
  const ValueId own_x = s.own_or_whole(x, ranges), own_y = s.make(y, ranges);
  s.enter(ranges, [&](size_t i) {
    return Rope{own_x, rope, ranges.empty() ? n_heads : (ranges[i].end - ranges[i].begin) / head_dim, head_dim, own_y};
  });
}

OpWork Rope::work(const WorkScope&) const { return {}; }

void Rope::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const RopeTable& table = rows.rope_tables[static_cast<size_t>(rope)];
  const RopeSpec& spec = table.spec();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t position = rows.position_of(y, i);
    for (int64_t j = 0; j < n_heads * head_dim; j += head_dim) {
      rope_ref(rows.row(x, i) + j, table.cos(position), table.sin(position), spec.dim, spec.interleaved, head_dim,
               rows.row(y, i) + j);
    }
  }
}

void Rope::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const auto n = static_cast<size_t>(rows.width(x));
  for (int64_t i = begin; i < end; ++i) {
    rotate64(rows.plan->ropes[static_cast<size_t>(rope)], rows.position_of(y, i), n_heads, head_dim,
             {rows.row(x, i), n}, {rows.row(y, i), n});
  }
}

}  // namespace assay::ops
