// A build without CUDA (ASSAY_CUDA=OFF): there are no devices, and who asks for one is told why.
#include "assay/error.h"
#include "backend/cuda/cuda.h"

namespace assay::backend::cuda {
namespace {

constexpr const char* kWhy = "this build has no CUDA backend (it was configured without -DASSAY_CUDA=ON)";

}  // namespace

Devices find_devices() { return {{}, kWhy}; }

std::unique_ptr<ops::Executor> make_cuda_executor(const ops::Plan&, const ops::ExecutorOptions&, int,
                                                  const ShardPlace&) {
  throw Error(Errc::device, kWhy);
}

std::shared_ptr<Peers> make_peers(const std::vector<int>&, base::Barrier&) { throw Error(Errc::device, kWhy); }

double measure_device_bandwidth(int) { throw Error(Errc::device, kWhy); }

}  // namespace assay::backend::cuda
