// For tests: a plan's shards on the CPU, each with a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/cpu/runtime/shard_table.h"
#include "engine/executors/shard_executor.h"

namespace assay::test {

class CpuShards {
 public:
  using Executor = std::unique_ptr<ops::Executor>;
  using Wrap = std::function<Executor(Executor, int i_shard)>;
  CpuShards(
      const ops::Plan& plan, const ops::ExecutorOptions& options, int n, Kernels set,
      const Wrap& wrap = [](Executor e, int) { return e; }) {
    executor_ =
        engine::make_shard_executor(plan, options, n, [&](const ops::Plan& shard, int i, base::Barrier& barrier) {
          if (table_ == nullptr) table_ = std::make_unique<backend::cpu::ShardTable>(barrier);
          pools_.push_back(std::make_unique<base::ThreadPool>(1));
          return wrap(backend::cpu::make_cpu_executor(shard, options, {set, table_.get(), i}, *pools_.back()), i);
        });
  }
  ops::Executor& operator*() { return *executor_; }
  ops::Executor* operator->() { return executor_.get(); }

 private:
  std::unique_ptr<backend::cpu::ShardTable> table_;
  std::vector<std::unique_ptr<base::ThreadPool>> pools_;
  Executor executor_;
};

}  // namespace assay::test
