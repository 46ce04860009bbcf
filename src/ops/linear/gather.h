// Of a plan that is one of several shards (plan_shards.h): x holds columns `column` .. of y, the other shards have the
// others; y is all of them. Bits: copied.
#pragma once

#include <cstdint>

#include "ops/plan/plan.h"

namespace assay::ops {

struct Gather {
  ValueId x;
  int64_t column;
  ValueId y;

  static constexpr const char* kKind = "gather";
  static constexpr Role kRole = Role::gather;
  void fields(FieldVisitor& f) { f.reads(x), f.writes(y); }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
};

}  // namespace assay::ops
