// See gather.h.
#include "ops/linear/gather.h"

#include <string>

#include "assay/error.h"
#include "ops/plan/check_scope.h"
#include "ops/plan/shard_scope.h"
#include "ops/plan/work.h"

namespace assay::ops {

void Gather::check(const CheckScope& s) const {
  if (s.domain(x).is_routed()) s.refuse("columns of routed rows");
  if (column < 0 || s.width(x) < 1 || column > s.width(y) - s.width(x)) {
    s.refuse("columns " + std::to_string(column) + " to " + std::to_string(column + s.width(x)) + " of " +
             std::to_string(s.width(y)));
  }
}

void Gather::shard(ShardScope&) const {
  throw Error(Errc::unsupported, "a shard of a model cannot be cut into shards again");
}

OpWork Gather::work(const WorkScope&) const { return {}; }

}  // namespace assay::ops
