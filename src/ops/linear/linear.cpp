// Reference of linear.h.
#include "ops/linear/linear.h"

#include "ops/plan/check_scope.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

float linear_ref(const quant::Format& format, const std::byte* row, const quant::Activations& x, int64_t token,
                 const float* bias) noexcept {
  const float dot = quant::dot_ref(format, row, x, token);
  return bias == nullptr ? dot : dot + *bias;
}

float linear_f32_ref(const quant::Format& format, const std::byte* row, const float* x, int64_t k,
                     const float* bias) noexcept {
  const float dot = quant::dot_f32_ref(format, row, x, k);
  return bias == nullptr ? dot : dot + *bias;
}

void Linear::check(const CheckScope& s) const {
  if (s.domain(x).is_routed()) s.refuse("one matrix for routed rows");
  s.expect_format(w);
  s.expect(s.cols(w), s.width(x), "columns of the weights");
  s.expect(s.rows(w), s.width(y), "rows of the weights");
  s.expect_vector(bias, s.width(y), "elements of the bias");
}

void Linear::shard(ShardScope& s) const {
  const ColumnRanges& ranges = s.rows_of_product();
  const ValueId own_x = s.whole_of(x);
  const WeightId own_w = s.weight_rows(w, ranges), own_bias = s.weight_elements(bias, ranges);
  const WeightId own_columns = ranges.empty() ? kNone : s.weight_columns(w, x, bias != kNone);
  const ValueId own_y = s.make(y, ranges);
  s.enter(ranges, [&](size_t) { return Linear{own_x, own_w, own_bias, own_y, own_columns}; });
}

OpWork Linear::work(const WorkScope& s) const {
  const int64_t rows = s.n_rows(y);
  if (rows == 0) return {};
  return {s.weight_bytes(w) + s.weight_bytes(bias),
          rows * s.plan().weights[static_cast<size_t>(w)].view.shape.elements(), s.multiplies_integers(w)};
}

}  // namespace assay::ops
