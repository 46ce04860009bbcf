// y[t, j] = table[position of t, j]: learned positions, for models without rotation; or the same row of a table for all
//   tokens (an encoder's first kind of token).
//   table: rows in any weight format, one a position; y f32 [n_tokens, d_model]. Bits: the decoded element. Positions
//     stay below the table's rows:
//   model/ limits the context to them.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct EmbedPosition {
  WeightId table;
  ValueId y;
  int64_t row = -1;  // for all tokens; -1: that of the token's position

  static constexpr const char* kKind = "embed_position";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = false;
  void fields(FieldVisitor& f) { f.matrix(table), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

}  // namespace assay::ops
