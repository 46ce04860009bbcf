// A build without Vulkan (ASSAY_VULKAN=OFF): there are no devices, and who asks for one is told why.
#include "assay/error.h"
#include "backend/vulkan/vulkan.h"

namespace assay::backend::vulkan {
namespace {

constexpr const char* kWhy = "this build has no Vulkan backend (it was configured without -DASSAY_VULKAN=ON)";

}  // namespace

void set_shader_folder(const std::string&) {}

Devices find_devices(bool) { return {{}, kWhy}; }

int default_device() { throw Error(Errc::device, kWhy); }

std::unique_ptr<ops::Executor> make_vulkan_executor(const ops::Plan&, const ops::ExecutorOptions&, int,
                                                    base::ThreadPool&, std::string&) {
  throw Error(Errc::device, kWhy);
}

}  // namespace assay::backend::vulkan
