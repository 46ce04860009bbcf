// The columns of shards (ops::Gather) of few rows, from GPU to GPU: a kernel on each writes its own columns into the
// memory of all and says so with a flag there, then waits for the flags of the others. Only between GPUs that reach one
// another's memory.
#pragma once

#include <vector_types.h>

#include <cstdint>

#include "backend/cuda/runtime/queue.h"
#include "ops/linear/gather.h"
#include "ops/plan/plan_shards.h"

namespace assay::backend::cuda {

inline constexpr int kGatherBlocksMax = 16;

struct GatherTask {
  const float* x = nullptr;               // [n_rows, own_width]
  float* y[ops::kShardsMax] = {};         // of every shard: [n_rows, width]
  uint32_t* flags[ops::kShardsMax] = {};  // of every shard: [n_shards, kGatherBlocksMax], who wrote there
  const uint32_t* round = nullptr;        // what a flag is set to: ascends with every run, the same in all shards
  uint32_t* timed_out = nullptr;          // set where the others did not come within kGatherSeconds
  uint32_t* arrived = nullptr;            // of a kernel that sends as it computes: 0, and 0 again afterwards
  int32_t own_width = 0, column = 0, width = 0, n_rows = 0, n_shards = 0, i_shard = 0;
};
inline constexpr double kGatherSeconds = 5;

// What a kernel that reads a gathered row waits for, where the kernels that made it sent it themselves.
struct ShardWait {
  const uint32_t* flags = nullptr;  // of this shard
  const uint32_t* round = nullptr;
  uint32_t* timed_out = nullptr;
  int32_t n_shards = 0, i_shard = 0;  // 0: nothing to wait for
};

// What each shard has summed of a row, its chunks of every product: added by the contract's tree where the row is read.
// A word that is not there yet has all bits set, which no sum of floats has; so nothing else tells. A run's words are
// set again at its end; those of the next run are others, by turns, for another shard may have begun it.
inline constexpr uint32_t kNoSum = 0xFFFFFFFF;
struct ShardSums {
  const float* of = nullptr;  // [n_shards, width], in this shard's memory
  uint32_t* timed_out = nullptr;
  int32_t n_shards = 0, width = 0;  // 0: none; 2 or 4
};
// The sums of all products of a run: n times 16 bytes.
struct SumsWords {
  uint4* begin = nullptr;
  int64_t n = 0;
};
// To where a kernel sends them: of every shard, the part of the one that sends.
inline constexpr int kSummingShardsMax = 4;
static_assert(ops::kColumnShardsMax <= kSummingShardsMax);
struct SumsTask {
  float* to[kSummingShardsMax] = {};
  int32_t n_shards = 0;  // 0: none
};

// A place for the task's flags, in words, and of `arrived` in it.
inline constexpr int64_t kArrivedWord = int64_t{ops::kShardsMax} * kGatherBlocksMax,
                         kGatherFlags = kArrivedWord + kGatherBlocksMax;

// ahead: the kernel that follows may start while this one waits; not where two shards share one GPU, whose threads it
// would keep from working.
void gather_columns(const GatherTask& task, bool ahead, const Queue& queue);

}  // namespace assay::backend::cuda
