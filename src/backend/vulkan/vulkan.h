// The door of the Vulkan backend. A build without it has vulkan_absent.cpp behind the same door; a build with it looks
// for the loader when a device is first asked for, so that the program also starts where there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::vulkan {

// Where devices that are opened from now on keep what their drivers make of shaders; empty, as at first: nowhere.
void set_shader_folder(const std::string& folder);

struct DeviceInfo {
  std::string name, driver;
  int version_major = 0, version_minor = 0;  // of Vulkan
  bool is_software = false;                  // a processor that computes as a GPU would: only used where it is named
  int64_t memory_bytes = 0, free_bytes = 0;  // free_bytes 0: not known
  std::string arithmetic;                    // what is emulated; only where it was probed
  std::string note;                          // of its compiled shaders of earlier runs; only where it was probed
  std::string refused;                       // why it cannot be used; empty: it can
};

struct Devices {
  std::vector<DeviceInfo> list;
  std::string why_none;  // where the list is empty
};
// probe: each device is opened and computes samples (probe/probe.h); else only what it says of itself is looked at.
Devices find_devices(bool probe);

// The device that is used where none is named: the first that is no software and not refused. Error(device) that says
// what there is.
int default_device();

// Runs a Plan on one device. The plan, what its weights point into and the pool, which computes the ops that the device
// has no kernel for, must outlive the executor; the weights are copied to the device. Throws Error(device) where there
// is no such device, it is refused or fails, Error(unsupported) for what it cannot run, Error(out_of_memory) with need
// and have. note: why compiled shaders of earlier runs are not used, where there are some.
std::unique_ptr<ops::Executor> make_vulkan_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                    int device, base::ThreadPool& pool, std::string& note);

}  // namespace assay::backend::vulkan
