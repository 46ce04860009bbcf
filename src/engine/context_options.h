// A Context's options with every default worked out, and the executor that they ask for.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "assay/context.h"
#include "backend/cpu/linear/linear.h"
#include "base/thread_pool.h"
#include "ops/plan/executor.h"

namespace assay::engine {

ops::CacheType cache_type(KvType type);

// Error(bad_request) naming the option where one cannot be served.
ContextOptions resolve(const ContextOptions& asked, const Model& model);
bool has_pages(const ContextOptions& resolved,
               const Model& model) noexcept;  // whether the cache is a pool of pages (pages/)
std::string_view why_no_pages(const ContextOptions& resolved,
                              const Model& model) noexcept;  // what the cache is then; empty where it has them

Kernels runnable(Kernels kernels);  // which those are here; Error(bad_request) for one that this machine cannot run

// As an executor is told them. options: as resolve() gives them.
ops::ExecutorOptions executor_options(const ContextOptions& options);

struct ChosenExecutor {
  std::unique_ptr<ops::Executor> executor;
  std::string kernels;  // what it runs
};

// The model and the pool must outlive it. options: as resolve() gives them. plan: another one than the model's own,
// which must outlive it too.
ChosenExecutor make_executor(const Model& model, const ContextOptions& options, base::ThreadPool& pool,
                             const ops::Plan* plan = nullptr);

}  // namespace assay::engine
