// See kv_store.h.
#include "ops/attention/kv_store.h"

#include "ops/plan/check_scope.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void KvStore::check(const CheckScope& s) const {
  const CacheLayer& of = s.cache_layer(layer);
  s.expect(s.width(k), of.n_kv_heads * of.head_dim, "columns of the keys");
  if ((v == kNone) != of.values_in_keys) s.refuse("values that the cache has no place for, or none where it has,");
  if (of.values_in_keys && of.v_dim() > of.head_dim) s.refuse("values wider than the keys that they lie in");
  if (v != kNone) s.expect(s.width(v), of.n_kv_heads * of.v_dim(), "columns of the values");
  if (s.domain(k) != RowDomain::tokens) s.refuse("keys of selected tokens alone");
}

void KvStore::shard(ShardScope& s) const {
  const HeadRanges& heads = s.heads(layer);
  s.set_kv_heads(layer);
  const ValueId own_k = s.own_or_whole(k, heads.kv), own_v = v == kNone ? kNone : s.own_or_whole(v, heads.kv);
  s.enter(times(heads.kv, s.whole().cache_layers[static_cast<size_t>(layer)].head_dim), [&](size_t) {
    return KvStore{own_k, own_v, layer};
  });
}

OpWork KvStore::work(const WorkScope&) const { return {}; }

}  // namespace assay::ops
