// See join.h.
#include "ops/rows/join.h"

#include <algorithm>
#include <string>

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

template <class T>
void join_rows(const Join& op, const HostRows<T>& rows, int64_t begin, int64_t end) noexcept {
  const int64_t from_a = rows.width(op.a) / op.n_runs, to = rows.width(op.y) / op.n_runs, from_b = to - from_a;
  const int64_t stride_b = rows.width(op.b) == from_b ? 0 : from_b;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t i = 0; i < op.n_runs; ++i) {
      T* y = rows.row(op.y, t) + i * to;
      std::copy_n(rows.row(op.a, t) + i * from_a, from_a, y);
      std::copy_n(rows.row(op.b, t) + i * stride_b, from_b, y + from_a);
    }
  }
}

}  // namespace

void Join::check(const CheckScope& s) const {
  if (n_runs < 1 || s.width(a) % n_runs != 0 || s.width(y) % n_runs != 0)
    s.refuse(std::to_string(n_runs) + " runs of a row");
  const int64_t of_b = (s.width(y) - s.width(a)) / n_runs;
  if (of_b < 1) s.refuse("a second part of no columns");
  if (s.width(b) != of_b) s.expect(s.width(b), n_runs * of_b, "columns of the second part");
}

void Join::shard(ShardScope& s) const {
  Join part = *this;
  part.a = s.whole_of(a), part.b = s.whole_of(b), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork Join::work(const WorkScope&) const { return {}; }

void Join::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  join_rows(*this, rows, begin, end);
}
void Join::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  join_rows(*this, rows, begin, end);
}

}  // namespace assay::ops
