// See match_magnitude.h.
#include "ops/rows/match_magnitude.h"

#include <cmath>

#include "num/lanes.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void MatchMagnitude::check(const CheckScope& s) const {
  s.expect(s.width(y), s.width(x), "columns");
  s.expect(s.width(like), s.width(x), "columns of the other row");
  if (s.width(x) < 1 || !(eps >= 0) || !std::isfinite(eps)) s.refuse("a length of this kind");
}

void MatchMagnitude::shard(ShardScope& s) const {
  MatchMagnitude part = *this;
  part.x = s.whole_of(x), part.like = s.whole_of(like), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork MatchMagnitude::work(const WorkScope&) const { return {}; }

void MatchMagnitude::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const int64_t d = rows.width(y);
  const auto root = [d](const float* row) {
    num::Lanes32 squares;
    for (int64_t j = 0; j < d; ++j) squares.fma(j, row[j], row[j]);
    return std::sqrt(squares.fold() / static_cast<float>(d));
  };
  const auto least = static_cast<float>(eps);
  for (int64_t i = begin; i < end; ++i) {
    const float own = root(rows.row(x, i)), by = root(rows.row(like, i)) / (own < least ? least : own);
    for (int64_t j = 0; j < d; ++j) rows.row(y, i)[j] = rows.row(x, i)[j] * by;
  }
}

void MatchMagnitude::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const int64_t d = rows.width(y);
  const auto root = [d](const double* row) {
    double squares = 0;
    for (int64_t j = 0; j < d; ++j) squares += row[j] * row[j];
    return std::sqrt(squares / static_cast<double>(d));
  };
  for (int64_t i = begin; i < end; ++i) {
    const double own = root(rows.row(x, i)), by = root(rows.row(like, i)) / (own < eps ? eps : own);
    for (int64_t j = 0; j < d; ++j) rows.row(y, i)[j] = rows.row(x, i)[j] * by;
  }
}

}  // namespace assay::ops
