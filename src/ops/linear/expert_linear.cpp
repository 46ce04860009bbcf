// See expert_linear.h.
#include "ops/linear/expert_linear.h"

#include <algorithm>
#include <string>

#include "ops/plan/check_scope.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void ExpertLinear::check(const CheckScope& s) const {
  s.expect_format(w);
  if (n_experts < 1 || n_used < 1 || n_used > n_experts)
    s.refuse(std::to_string(n_used) + " used of " + std::to_string(n_experts) + " experts");
  s.expect(s.cols(w), d_in, "columns of the experts' weights");
  const int64_t n_rows = rows_per_expert == 0 ? d_out : rows_per_expert;
  if (first_row < 0 || d_out < 1 || first_row > n_rows - d_out) s.refuse("rows beyond those of an expert");
  s.expect(s.rows(w), n_experts * n_rows, "rows of all experts' weights");
  s.expect_vector(bias, n_experts * n_rows, "elements of the experts' biases");
  if (routes == kNone) return check_heads(s);
  const RowDomain& routed_by = s.domain(routes);
  s.expect(s.width(routes), 2 * n_used, "columns of the routes");
  s.expect(s.width(x), d_in, "columns");
  if (s.domain(x) != routed_by) s.expect_rows(x, routed_by.routed(n_used));
  s.expect(s.width(y), d_out, "columns of the result");
  s.expect_rows(y, routed_by.routed(n_used));
}

void ExpertLinear::check_heads(const CheckScope& s) const {
  s.expect(n_used, n_experts, "ranks without routes");
  if (s.width(x) != d_in) s.expect(s.width(x), n_used * d_in, "columns");
  if (s.domain(x).is_routed()) s.refuse("heads of routed rows");
  s.expect(s.width(y), n_used * d_out, "columns of the result");
  s.expect_rows(y, s.domain(x));
}

// Every shard computes them whole.
void ExpertLinear::shard(ShardScope& s) const {
  ExpertLinear part = *this;
  part.x = s.whole_of(x), part.routes = routes == kNone ? kNone : s.whole_of(routes);
  part.w = s.whole_weight(w), part.bias = s.whole_weight(bias);
  part.y = s.make(y, {});
  s.enter({}, [&](size_t) { return part; });
}

// The bytes of as many experts as the tokens can reach at most.
OpWork ExpertLinear::work(const WorkScope& s) const {
  const int64_t n = n_pairs(s.n_rows(y));
  if (n == 0) return {};
  const int64_t share = rows_per_expert == 0 ? 1 : rows_per_expert / d_out;
  const int64_t bytes = (s.weight_bytes(w) + s.weight_bytes(bias)) / n_experts / share * std::min(n, n_experts);
  return {bytes, n * d_in * d_out, s.multiplies_integers(w)};
}

}  // namespace assay::ops
