// One Plan on several executors: each has some of the layers, their weights and their part of the KV cache, and hands
// its last rows on to the next through the host. Which device runs a layer changes no bit. A part that fails takes the
// whole run back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::engine {

// i_part counts from 0; the plan outlives the executor that is made for it.
using MakePart = std::function<std::unique_ptr<ops::Executor>(const ops::Plan& part, int i_part)>;

// borders as ops::split_plan takes them. The plan must outlive the executor.
std::unique_ptr<ops::Executor> make_split_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                   std::span<const int32_t> borders, const MakePart& make);

}  // namespace assay::engine
