// The loader, opened when a device is first asked for, and what it finds. Nothing is linked: every function comes out
// of the tables here.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace assay::backend::vulkan {

// Each name stands once: it is declared, and looked up, by a list.
// By hand, since clang-format never comes to rest with such a list.
// clang-format off
#define ASSAY_VULKAN_INSTANCE_FUNCTIONS(X) \
  X(DestroyInstance) X(EnumeratePhysicalDevices) X(GetPhysicalDeviceProperties2) X(GetPhysicalDeviceFeatures2) \
  X(GetPhysicalDeviceQueueFamilyProperties) X(GetPhysicalDeviceMemoryProperties2) \
  X(EnumerateDeviceExtensionProperties) X(CreateDevice) X(GetDeviceProcAddr)
#define ASSAY_VULKAN_DEVICE_FUNCTIONS(X) \
  X(DestroyDevice) X(GetDeviceQueue) X(DeviceWaitIdle) X(AllocateMemory) X(FreeMemory) X(MapMemory) \
  X(CreateBuffer) X(DestroyBuffer) X(GetBufferMemoryRequirements) X(BindBufferMemory) \
  X(GetBufferDeviceAddress) X(CreateShaderModule) X(DestroyShaderModule) X(CreatePipelineLayout) \
  X(DestroyPipelineLayout) X(CreateComputePipelines) X(DestroyPipeline) X(CreateCommandPool) \
  X(DestroyCommandPool) X(AllocateCommandBuffers) X(FreeCommandBuffers) X(BeginCommandBuffer) \
  X(EndCommandBuffer) X(CmdBindPipeline) X(CmdPushConstants) X(CmdDispatch) X(CmdPipelineBarrier) \
  X(CmdCopyBuffer) X(QueueSubmit) X(CreateFence) X(DestroyFence) X(WaitForFences) X(ResetFences) \
  X(CreatePipelineCache) X(DestroyPipelineCache) X(GetPipelineCacheData) \
  X(CreateQueryPool) X(DestroyQueryPool) X(CmdResetQueryPool) X(CmdWriteTimestamp) X(GetQueryPoolResults)
// clang-format on

#define ASSAY_VULKAN_DECLARE(name) PFN_vk##name name = nullptr;
struct InstanceFunctions {
  ASSAY_VULKAN_INSTANCE_FUNCTIONS(ASSAY_VULKAN_DECLARE)
};
struct DeviceFunctions {
  ASSAY_VULKAN_DEVICE_FUNCTIONS(ASSAY_VULKAN_DECLARE)
};
#undef ASSAY_VULKAN_DECLARE

// Error(device) or Error(out_of_memory) where a call failed. doing: "making a pipeline".
void check(VkResult result, const std::string& doing);
std::string text_of(VkResult result);

// What a physical device says of itself.
struct Facts {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  std::string name, driver;
  uint32_t version = 0;
  std::array<uint8_t, VK_UUID_SIZE> uuid = {}, cache_uuid = {};  // cache_uuid: of what its driver compiles
  uint32_t driver_version = 0, vendor = 0, kind = 0;             // kind: of the vendor's devices
  bool is_software = false, shares_memory = false;  // shares_memory: the host's and the device's are the same
  bool has_float64 = false, has_portability = false, has_budget = false;
  bool has_shuffles = false;                     // between invocations of a subgroup, which has 4 or more
  bool has_dots = false, has_fast_dots = false;  // an instruction for dots of packed bytes; and one that is accelerated
  // Cooperative matrices as linear/cooperative.glsl has them (VK_NV_cooperative_matrix): bytes of a row that they
  // multiply at once; 0: none, and why, where it has others.
  uint32_t matrix_depth = 0;
  std::string matrices_lack;
  uint32_t queue_family = 0;
  int64_t memory_bytes = 0, free_bytes = 0;
  uint64_t piece_bytes_max = 0;  // that are allocated at once
  uint32_t n_pieces_max = 0;
  uint32_t shared_bytes = 0, n_invocations_max = 0;  // of a workgroup
  double tick_ns = 0;                                // of the queue's clock; 0: it has none
  VkPhysicalDeviceMemoryProperties memory = {};
  std::string refused;  // what it lacks; empty: nothing
};

class Instance {
 public:
  // library: the loader's file; empty: the usual names. Error(device) where there is no loader, or it finds no driver.
  explicit Instance(const std::string& library = {});
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  std::vector<Facts> devices() const;
  const InstanceFunctions& functions() const noexcept { return functions_; }

 private:
  void open(const std::string& library);
  Facts facts_of(VkPhysicalDevice device) const;
  void find_dots(Facts& facts) const;
  void find_matrices(Facts& facts) const;
  void ask_features(VkPhysicalDevice device, void* structure) const;
  void ask_properties(VkPhysicalDevice device, void* structure) const;
  uint32_t matrix_depth_of(VkPhysicalDevice device) const;

  void* library_ = nullptr;
  PFN_vkGetInstanceProcAddr lookup_ = nullptr;
  VkInstance instance_ = VK_NULL_HANDLE;
  InstanceFunctions functions_;
};

}  // namespace assay::backend::vulkan
