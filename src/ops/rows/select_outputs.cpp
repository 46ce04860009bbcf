// Reference of select_outputs.h.
#include "ops/rows/select_outputs.h"

#include <algorithm>

#include "ops/plan/check_scope.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

int64_t select_outputs_ref(tensor::ConstMat x, std::span<const uint8_t> outputs, tensor::Mat y) noexcept {
  int64_t n = 0;
  for (int64_t t = 0; t < x.rows; ++t) {
    if (outputs[static_cast<size_t>(t)] == 0) continue;
    std::copy_n(x.row(t), x.cols, y.row(n));
    ++n;
  }
  return n;
}

void SelectOutputs::check(const CheckScope& s) const {
  s.expect_rows(x, RowDomain::tokens);
  s.expect_rows(y, RowDomain::outputs);
  s.expect(s.width(x), s.width(y), "columns");
}

void SelectOutputs::shard(ShardScope& s) const {
  const ColumnRanges ranges = s.ranges(x);
  const ValueId own_x = s.own(x), own_y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return SelectOutputs{own_x, own_y}; });
}

OpWork SelectOutputs::work(const WorkScope&) const { return {}; }

}  // namespace assay::ops
