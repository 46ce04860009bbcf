// The executor behind the door, with the choice that only tests make.
#pragma once

#include <memory>

#include "backend/vulkan/device/device.h"
#include "base/thread_pool.h"
#include "ops/plan/executor.h"

namespace assay::backend::vulkan {

// borrows_all: every op runs its reference on the host.
std::unique_ptr<ops::Executor> make_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                             std::unique_ptr<Device> device, base::ThreadPool& pool, bool borrows_all);

}  // namespace assay::backend::vulkan
