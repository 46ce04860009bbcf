// See embed_position.h.
#include "ops/embed/embed_position.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"
#include "quant/format.h"

namespace assay::ops {

void EmbedPosition::check(const CheckScope& s) const {
  s.expect_rows(y, RowDomain::tokens);
  s.expect_format(table);
  s.expect(s.cols(table), s.width(y), "columns of the table of positions");
  if (row >= s.rows(table)) s.refuse("row " + std::to_string(row) + " of a table of " + std::to_string(s.rows(table)));
}

void EmbedPosition::shard(ShardScope& s) const {
  const WeightId own_table = s.whole_weight(table);
  const ValueId own_y = s.make(y, {});
  s.enter({}, [&](size_t) { return EmbedPosition{own_table, own_y, row}; });
}

OpWork EmbedPosition::work(const WorkScope& s) const {
  return {.bytes = s.weight_bytes(table) /
                   std::max<int64_t>(s.plan().weights[static_cast<size_t>(table)].view.shape.rows(), 1) * s.n_rows(y)};
}

void EmbedPosition::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const tensor::TensorView& view = rows.plan->weights[static_cast<size_t>(table)].view;
  for (int64_t i = begin; i < end; ++i) {
    quant::decode_row(*quant::find_format(view.dtype), view.row(row >= 0 ? row : rows.position_of(y, i)), rows.width(y),
                      rows.row(y, i));
  }
}

void EmbedPosition::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const tensor::TensorView& view = rows.plan->weights[static_cast<size_t>(table)].view;
  std::vector<float> decoded(static_cast<size_t>(rows.width(y)));
  for (int64_t i = begin; i < end; ++i) {
    quant::decode_row(*quant::find_format(view.dtype), view.row(row >= 0 ? row : rows.position_of(y, i)), rows.width(y),
                      decoded.data());
    std::copy(decoded.begin(), decoded.end(), rows.row(y, i));
  }
}

}  // namespace assay::ops
