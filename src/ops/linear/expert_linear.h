// y[t, i d_out + r] = sum_j w[e, r, j] x[t, j] + bias[e, r],  e the expert of rank i of the token (ops/linear/route.h)
//   w: [n_experts, d_out, d_in] in any weight format; bias f32 [n_experts, d_out] or none. y: a row [d_out] for each
//     rank of a token. x: [d_in] of a token, the same for every rank, or of each rank its own.
//   Without routes every token goes through all of them, rank i through expert i: a product of every head with a matrix
//     of its own. The heads of a token stand side by side in its row: y [n_used d_out]; x [d_in], or [n_used d_in].
// Bits: those of ops/linear/linear.h with the expert's rows: one output's bits depend on its expert, its row and its
//   token alone, never on which tokens went the same way.
#pragma once

#include <cstdint>

#include "ops/linear/route.h"
#include "ops/plan/plan.h"

namespace assay::ops {

struct ExpertLinear {
  ValueId x, routes;  // routes: kNone where n_used = n_experts and rank i is expert i
  WeightId w, bias;   // bias: kNone or as one vector
  int64_t n_experts, n_used, d_in, d_out;
  ValueId y;
  // Where an expert's rows lie in w (and its bias in bias): rows_per_expert of them, of which d_out from first_row on
  // are meant; 0: d_out, all of them.
  int64_t rows_per_expert = 0, first_row = 0;
  int64_t row_of(int64_t expert) const noexcept {
    return expert * (rows_per_expert == 0 ? d_out : rows_per_expert) + first_row;
  }

  // Pair t * n_used + i is rank i of token (or output) t; n_rows: of y.
  int64_t n_pairs(int64_t n_rows) const noexcept { return routes == kNone ? n_rows * n_used : n_rows; }
  // Where a pair has its input and its result.
  struct Place {
    int64_t row = 0, column = 0;
  };
  bool has_own_inputs(const Value& of_x) const noexcept { return of_x.domain.is_routed() || of_x.width != d_in; }
  Place input_of(const Value& of_x, int64_t pair) const noexcept {
    if (of_x.domain.is_routed()) return {pair, 0};
    return {pair / n_used, has_own_inputs(of_x) ? pair % n_used * d_in : 0};
  }
  Place result_of(int64_t pair) const noexcept {
    return routes == kNone ? Place{pair / n_used, pair % n_used * d_out} : Place{pair, 0};
  }

  static constexpr const char* kKind = "expert_linear";
  static constexpr Role kRole = Role::experts;
  static constexpr bool kRowsAlike = false;
  void fields(FieldVisitor& f) {
    f.reads(x);
    if (routes != kNone) f.reads(routes);
    f.matrix(w), f.vector(bias), f.writes(y);
  }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;

 private:
  void check_heads(const CheckScope& scope) const;  // without routes
};

}  // namespace assay::ops
