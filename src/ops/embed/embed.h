// y[t, j] = decode(table[token[t], j]) * scale
//   table: rows in any weight format; y f32 [n_tokens, d_model].
// Bits: the decoded element (quant/format.h) times scale, rounded once to f32 by the plan's reader; one rounding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/plan/plan.h"
#include "quant/format.h"

namespace assay::ops {

struct Embed {
  WeightId table;
  double scale;  // a double for the oracle's sake; executors of f32 round it once, to float
  ValueId y;

  static constexpr const char* kKind = "embed";
  static constexpr Role kRole = Role::row;
  static constexpr bool kInPlace = false;
  void fields(FieldVisitor& f) { f.matrix(table), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept;
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept;
};

// One token: row is its row of the table, d elements (a multiple of the format's block).
void embed_ref(const quant::Format& format, const std::byte* row, int64_t d, float scale, float* y) noexcept;

}  // namespace assay::ops
