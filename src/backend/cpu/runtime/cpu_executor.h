// Runs a Plan on the CPU.
#pragma once

#include <memory>
#include <string_view>

#include "backend/cpu/linear/linear.h"
#include "base/thread_pool.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cpu {

class ShardTable;

struct CpuOptions {
  Kernels kernels = best_kernel_set();
  // Of an executor of one shard of a model (ops/plan/plan_shards.h): where it meets the others, and which it is.
  ShardTable* shards = nullptr;
  int i_shard = 0;
  bool with_views = true;            // false, for tests: slices and joins are copied
  std::string_view kernel_row = {};  // rows of the set's table that go before all others (require_row()); empty: none
};

// The plan, what its weights point into and the pool must outlive the executor. Throws Error(unsupported) for what the
// CPU cannot run, Error(out_of_memory) where cache or arena do not fit.
std::unique_ptr<ops::Executor> make_cpu_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                 const CpuOptions& cpu, base::ThreadPool& pool);

}  // namespace assay::backend::cpu
