// See slice.h.
#include "ops/rows/slice.h"

#include <algorithm>
#include <string>

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

template <class T>
void slice_rows(const Slice& op, const HostRows<T>& rows, int64_t begin, int64_t end) noexcept {
  const int64_t from = rows.width(op.x) / op.n_runs, to = rows.width(op.y) / op.n_runs;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t i = 0; i < op.n_runs; ++i)
      std::copy_n(rows.row(op.x, t) + i * from + op.first, to, rows.row(op.y, t) + i * to);
  }
}

}  // namespace

void Slice::check(const CheckScope& s) const {
  if (n_runs < 1 || s.width(x) % n_runs != 0 || s.width(y) % n_runs != 0)
    s.refuse(std::to_string(n_runs) + " runs of a row");
  const int64_t of_x = s.width(x) / n_runs, of_y = s.width(y) / n_runs;
  if (first < 0 || of_y < 1 || first > of_x - of_y) s.refuse("columns beyond those of a run");
}

void Slice::shard(ShardScope& s) const {
  Slice part = *this;
  part.x = s.whole_of(x), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork Slice::work(const WorkScope&) const { return {}; }

void Slice::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  slice_rows(*this, rows, begin, end);
}
void Slice::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  slice_rows(*this, rows, begin, end);
}

}  // namespace assay::ops
