// One Plan on several executors side by side (tensor parallelism): each has some of the heads and some of the rows of
// every matrix, and a thread of its own that runs it; they meet at the plan's Gathers. No bit depends on their number.
// A shard that fails takes the whole run back.
#pragma once

#include <functional>
#include <memory>

#include "base/barrier.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::engine {

// i_shard counts from 0; the shard's plan and the barrier outlive the executor that is made. A Gather waits at the
// barrier, which is called off where a shard fails.
using MakeShard =
    std::function<std::unique_ptr<ops::Executor>(const ops::Plan& shard, int i_shard, base::Barrier& barrier)>;

// n_shards as ops::shard_plan takes it. The plan must outlive the executor.
std::unique_ptr<ops::Executor> make_shard_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                   int n_shards, const MakeShard& make);

}  // namespace assay::engine
