// Reference of embed.h.
#include "ops/embed/embed.h"

#include <algorithm>
#include <vector>

#include "ops/plan/check_scope.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void embed_ref(const quant::Format& format, const std::byte* row, int64_t d, float scale, float* y) noexcept {
  quant::decode_row(format, row, d, y);
  for (int64_t j = 0; j < d; ++j) y[j] = y[j] * scale;
}

void Embed::check(const CheckScope& s) const {
  s.expect_rows(y, RowDomain::tokens);
  s.expect_format(table);
  s.expect(s.cols(table), s.width(y), "columns of the embedding table");
}

void Embed::shard(ShardScope& s) const {
  const WeightId own_table = s.whole_weight(table);
  const ValueId own_y = s.make(y, {});
  s.enter({}, [&](size_t) { return Embed{own_table, scale, own_y}; });
}

// Its own rows of the table.
OpWork Embed::work(const WorkScope& s) const {
  return {.bytes = s.weight_bytes(table) / std::max<int64_t>(s.plan().vocab_size, 1) * s.n_rows(y)};
}

void Embed::run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept {
  const tensor::TensorView& view = rows.plan->weights[static_cast<size_t>(table)].view;
  const quant::Format& format = *quant::find_format(view.dtype);
  for (int64_t i = begin; i < end; ++i) {
    embed_ref(format, view.row(rows.tokens[static_cast<size_t>(rows.token_of(y, i))]), rows.width(y),
              static_cast<float>(scale), rows.row(y, i));
  }
}

void Embed::run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept {
  const tensor::TensorView& view = rows.plan->weights[static_cast<size_t>(table)].view;
  const quant::Format& format = *quant::find_format(view.dtype);
  const int64_t d = rows.width(y);
  std::vector<float> decoded(static_cast<size_t>(d));
  for (int64_t i = begin; i < end; ++i) {
    quant::decode_row(format, view.row(rows.tokens[static_cast<size_t>(rows.token_of(y, i))]), d, decoded.data());
    for (int64_t j = 0; j < d; ++j) rows.row(y, i)[j] = static_cast<double>(decoded[static_cast<size_t>(j)]) * scale;
  }
}

}  // namespace assay::ops
