// See activate.h.
#include "ops/rows/activate.h"

#include <array>
#include <utility>

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"
#include "ops/rows/activation.h"

namespace assay::ops {
namespace {

template <ActivationFunction activation>
void activate_all(const float* x, int64_t n, float* y) noexcept {
  for (int64_t j = 0; j < n; ++j) y[j] = activate(activation, x[j]);
}

template <size_t... i>
constexpr std::array<ActivateFunction, sizeof...(i)> all_functions(std::index_sequence<i...>) {
  return {activate_all<static_cast<ActivationFunction>(i)>...};
}
constexpr auto kFunctions = all_functions(std::make_index_sequence<kNActivationFunctions>());

}  // namespace

ActivateFunction activate_ref(ActivationFunction activation) noexcept {
  return kFunctions[static_cast<size_t>(activation)];
}

void Activate::check(const CheckScope& s) const { s.expect(s.width(y), s.width(x), "columns"); }

void Activate::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.ranges(x);
  Activate part = *this;
  part.x = s.own(x), part.y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return part; });
}

OpWork Activate::work(const WorkScope&) const { return {}; }

void Activate::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  activate_ref(activation)(rows.row(x, begin), (end - begin) * rows.width(y), rows.row(y, begin));
}

void Activate::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const auto function = traits_of(activation).f64;
  const double* from = rows.row(x, begin);
  double* to = rows.row(y, begin);
  for (int64_t i = 0; i < (end - begin) * rows.width(y); ++i) to[i] = function(from[i]);
}

}  // namespace assay::ops
