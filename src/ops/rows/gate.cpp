// See gate.h.
#include "ops/rows/gate.h"

#include <array>
#include <utility>

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

template <ActivationFunction activation>
void gate_of(const float* gate, const float* up, int64_t n, float* y) noexcept {
  for (int64_t j = 0; j < n; ++j) y[j] = activate(activation, gate[j]) * up[j];
}

template <size_t... i>
constexpr std::array<GateFunction, sizeof...(i)> all_gates(std::index_sequence<i...>) {
  return {gate_of<static_cast<ActivationFunction>(i)>...};
}
constexpr auto kGates = all_gates(std::make_index_sequence<kNActivationFunctions>());

}  // namespace

GateFunction gate_ref(ActivationFunction activation) noexcept { return kGates[static_cast<size_t>(activation)]; }

void Gate::check(const CheckScope& s) const {
  if (s.width(gate) < 1) s.refuse("a gate of no columns");
  s.expect(s.width(y) % s.width(gate), 0, "columns left over after whole runs of the gate");
  s.expect(s.width(up), s.width(y), "columns");
}

void Gate::shard(ShardScope& s) const {
  const bool alike =
      s.width(gate) == s.width(up) && !s.ranges(gate).empty() && !s.ranges(up).empty();  // of one width, so cut alike
  const ColumnRanges ranges = alike ? s.ranges(gate) : ColumnRanges{};
  const ValueId own_gate = alike ? s.own(gate) : s.whole_of(gate), own_up = alike ? s.own(up) : s.whole_of(up),
                own_y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return Gate{own_gate, own_up, activation, own_y}; });
}

OpWork Gate::work(const WorkScope&) const { return {}; }

void Gate::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  if (rows.width(gate) == rows.width(y)) {
    return gate_ref(activation)(rows.row(gate, begin), rows.row(up, begin), (end - begin) * rows.width(y),
                                rows.row(y, begin));
  }
  const int64_t n = rows.width(y) / rows.width(gate);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < rows.width(gate); ++j) {
      const float factor = activate(activation, rows.row(gate, i)[j]);
      for (int64_t k = j * n; k < (j + 1) * n; ++k) rows.row(y, i)[k] = factor * rows.row(up, i)[k];
    }
  }
}

void Gate::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const auto function = traits_of(activation).f64;
  const int64_t n = rows.width(y) / rows.width(gate);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < rows.width(y); ++j)
      rows.row(y, i)[j] = function(rows.row(gate, i)[j / n]) * rows.row(up, i)[j];
  }
}

}  // namespace assay::ops
