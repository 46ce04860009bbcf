// See add_columns.h.
#include "ops/rows/add_columns.h"

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {
namespace {

template <class T>
void add_column_rows(const AddColumns& op, const HostRows<T>& rows, int64_t begin, int64_t end) noexcept {
  const float* w = rows.small(op.w);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < rows.width(op.y); ++j) rows.row(op.y, i)[j] = rows.row(op.x, i)[j] + static_cast<T>(w[j]);
  }
}

}  // namespace

void AddColumns::check(const CheckScope& s) const {
  s.expect_vector(w, s.width(x), "biases");
  s.expect(s.width(y), s.width(x), "columns");
}

void AddColumns::shard(ShardScope& s) const {
  AddColumns part = *this;
  part.x = s.whole_of(x), part.w = s.whole_weight(w), part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

OpWork AddColumns::work(const WorkScope& s) const { return {.bytes = s.n_rows(y) > 0 ? s.weight_bytes(w) : 0}; }

void AddColumns::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  add_column_rows(*this, rows, begin, end);
}
void AddColumns::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  add_column_rows(*this, rows, begin, end);
}

}  // namespace assay::ops
