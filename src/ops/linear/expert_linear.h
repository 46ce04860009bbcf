// y[t, i d_out + r] = sum_j w[e, r, j] x[t, j] + bias[e, r],  e the expert of rank i of the token (ops/linear/route.h)
//   w: [n_experts, d_out, d_in] in any weight format; bias f32 [n_experts, d_out] or none. x: [d_in], the same for
//     every rank, or [n_used d_in], of each rank its own. y [n_used d_out].
//   Without routes every token goes through all of them, rank i through expert i: a product of every head with a matrix
//     of its own.
// Bits: those of ops/linear/linear.h with the expert's rows: one output's bits depend on its expert, its row and its
//   token alone, never on which tokens went the same way.
#pragma once

#include <cstdint>

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

  static constexpr const char* kKind = "expert_linear";
  static constexpr Role kRole = Role::experts;
  void fields(FieldVisitor& f) {
    f.reads(x);
    if (routes != kNone) f.reads(routes);
    f.matrix(w), f.vector(bias), f.writes(y);
  }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
};

}  // namespace assay::ops
