// A second engine for tests: the same Plan in plain float loops, sharing no kernel, no decoder and no cache with src/;
// what it has no loop for (ops that a few families have) it runs by the op's formula in float64. Without a fault it is
// right, within the rounding it declares; with one it is wrong as another engine once was. Faults of how a family is
// put together are faults of the plan that it runs.
#pragma once

#include <memory>

#include "faulty/fault.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "trace/dump.h"

namespace assay::faults {

struct EngineOptions {
  Fault fault = Fault::none;
  int activation_bits = 0;                     // 0 (floats) or 8
  ops::CacheType cache = ops::CacheType::f16;  // of keys and values
  void (*change_plan)(ops::Plan& plan) =
      nullptr;  // it runs a plan that is wrong; ops keep their names, values their ids
  std::shared_ptr<int> n_runs =
      std::make_shared<int>(0);  // of all executors made from these options: what a race depends on
};

// What verify is told of such an engine.
trace::Declared declared_of(const EngineOptions& options);

// What the weights of the plan point into must outlive it. Error(unsupported) for weights that plain_formats.h does not
// decode.
std::unique_ptr<ops::Executor> make_faulty_executor(const ops::Plan& plan, const EngineOptions& options, int64_t n_ctx,
                                                    int n_sequences);

}  // namespace assay::faults
