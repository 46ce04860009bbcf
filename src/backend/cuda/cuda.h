// The door of the CUDA backend. A build without it has cuda_absent.cpp behind the same door; a build with it asks for
// the driver when it is first needed, so that the program also starts where there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/barrier.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int n_multiprocessors = 0;
  int64_t memory_bytes = 0, free_bytes = 0;
};

struct Devices {
  std::vector<DeviceInfo> list;
  std::string why_none;  // where the list is empty
};
Devices find_devices();

// Runs a Plan on one GPU. The plan and what its weights point into must outlive the executor; the weights are copied to
// the device. Throws Error(device) where there is no such device or it fails, Error(unsupported) for what the GPU
// cannot run, Error(out_of_memory) with need and have. place: of a shard of a model (ops/plan/plan_shards.h), one of a
// group; all of the group are made before the first runs.
class Peers;
struct ShardPlace {
  std::shared_ptr<Peers> peers = {};
  int i_shard = 0;
};
std::unique_ptr<ops::Executor> make_cuda_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                  int device = 0, const ShardPlace& place = {});

// The group of shards on these devices, one for each. The barrier, of as many threads, must outlive it.
std::shared_ptr<Peers> make_peers(const std::vector<int>& devices, base::Barrier& barrier);

// Which kernels would run each op of the plan on a card of that name, which need not be here, by the number of tokens
// (ops::Executor::kernels_of). Error(bad_request) lists the names where it is none of them.
std::vector<std::vector<ops::KernelUse>> kernels_on_card(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                         std::string_view card);
std::vector<std::string> card_names();  // the first is the default

// Bytes per second that the device copies within its memory, read and written bytes counted.
double measure_device_bandwidth(int device = 0);

}  // namespace assay::backend::cuda
