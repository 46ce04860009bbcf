// Mode `oracle`: runs a Plan in float64 throughout, weights decoded exactly, the cache in float64, sums in plain order.
// It is the arbiter for every other way to run a Plan, so it is written to be checked by eye; its only haste is a
// blocked matrix product.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::oracle {

// The plan, what its weights point into and the pool must outlive the executor. Of the options only sizes count: the
// cache is float64 whatever its types say.
std::unique_ptr<ops::Executor> make_oracle_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                    base::ThreadPool& pool);

}  // namespace assay::backend::oracle
