// Keeps the rows of k and v in a layer of the KV cache, at their tokens' positions, in the cache's type: what is read
// back is said in ops/attention/attention.h. In a layer whose values lie in its keys there is no v.
#pragma once

#include "ops/plan/plan.h"

namespace assay::ops {

struct KvStore {
  ValueId k, v;  // v: kNone where the layer has values_in_keys
  int32_t layer;

  static constexpr const char* kKind = "kv_store";
  static constexpr Role kRole = Role::store;
  void fields(FieldVisitor& f) {
    f.reads(k);
    if (v != kNone) f.reads(v);
    f.cache_layer(layer);
  }
  void check(const CheckScope& scope) const;
  void shard(ShardScope& scope) const;
  OpWork work(const WorkScope& scope) const;
};

}  // namespace assay::ops
