// Cuts a Plan into shards that run side by side on executors of their own, each a Plan of the same ops: what tensor
// parallelism is made of. A shard has some of the heads with their part of the KV cache, and some of the rows of every
// matrix; what reads whole rows is preceded by a Gather, which all shards do together. So every output of a product is
// summed whole on one device, in the contract's order: no bit depends on the number of shards. Norms, sums and the
// integers of a row, which are cheap, are computed by every shard. A product whose row is divided where the contract's
// chunks are names the shard's columns of its matrix, too (Linear::columns), for executors that exchange its sums, not
// its row.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/plan/plan.h"

namespace assay::ops {

inline constexpr int kShardsMax = 8;
// Shards that have columns of matrices: a power of two, so that each has whole branches of the contract's tree. Four
// are not tried on GPUs of their own.
inline constexpr int kColumnShardsMax = 2;

struct ColumnRange {
  int64_t begin = 0, end = 0;
};

struct PlanShard {
  // Per op of the shard: which op of the whole plan it is, and which columns of the value that one announces it has.
  struct Origin {
    int32_t i_op = kNone;  // kNone: a Gather
    ColumnRange columns;
    bool is_whole = false;  // all shards compute the same
  };
  Plan plan;
  std::vector<Origin> origins;
  std::vector<ColumnRange> kv_heads;  // per layer of the cache: which of the whole's; two shards may both have one
};

// Views of weights point into those of `whole`. What cannot be divided is whole in every shard: attention where neither
// the KV heads are as many as the shards nor the shards a multiple of them, matrices of few rows. The ops, values and
// gathers of all shards are the same, in the same order, but for widths. Error(bad_request) for a number of shards that
// is not 2 .. kShardsMax.
std::vector<PlanShard> shard_plan(const Plan& whole, int n_shards);

}  // namespace assay::ops
