// See instance.h.
#include "backend/vulkan/device/instance.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "assay/error.h"

namespace assay::backend::vulkan {
namespace {

constexpr uint32_t kVersionMin = VK_API_VERSION_1_2;
constexpr uint32_t kInvocationsMin = 256, kPushBytesMin = 128, kSharedBytesMin = 16384;
constexpr uint32_t kShuffledMin = 4;                                  // invocations that hand sums to one another
constexpr uint32_t kMatrixSubgroup = 32, kMatrixSharedBytes = 49152;  // of linear/linear_matrix.comp
constexpr const char* kPortability = "VK_KHR_portability_enumeration";
constexpr const char* kDots = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
constexpr const char* kMatrices = VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME;
constexpr const char* kPortabilitySubset = "VK_KHR_portability_subset";

std::string version_text(uint32_t version) {
  return std::to_string(VK_API_VERSION_MAJOR(version)) + "." + std::to_string(VK_API_VERSION_MINOR(version));
}

bool lists(const std::vector<VkExtensionProperties>& extensions, const char* name) {
  return std::any_of(extensions.begin(), extensions.end(),
                     [&](const VkExtensionProperties& e) { return std::strcmp(e.extensionName, name) == 0; });
}

}  // namespace

std::string text_of(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY: return "the host's memory is full";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY: return "the device's memory is full";
    case VK_ERROR_DEVICE_LOST:
      return "the device was lost: its driver gave up or was reset, perhaps because a step took longer than its "
             "watchdog allows; start the program "
             "again, with smaller chunks (-ub) if it happens again, or with --backend cpu";
    case VK_ERROR_INITIALIZATION_FAILED: return "the driver could not start";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return "no driver was found (its package may be missing: mesa-vulkan-drivers, or the one of the card's maker)";
    case VK_ERROR_TOO_MANY_OBJECTS: return "too many pieces of memory";
    default: return "Vulkan's error " + std::to_string(static_cast<int>(result));
  }
}

void check(VkResult result, const std::string& doing) {
  if (result >= 0) return;
  const bool is_memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
  throw Error(is_memory ? Errc::out_of_memory : Errc::device, "Vulkan, " + doing + ": " + text_of(result));
}

Instance::Instance(const std::string& library) {
  open(library);
  try {
    const auto enumerate = reinterpret_cast<PFN_vkEnumerateInstanceExtensionProperties>(
        lookup_(nullptr, "vkEnumerateInstanceExtensionProperties"));
    const auto create = reinterpret_cast<PFN_vkCreateInstance>(lookup_(nullptr, "vkCreateInstance"));
    if (enumerate == nullptr || create == nullptr)
      throw Error(Errc::device, "Vulkan's loader lacks vkCreateInstance: it is not one, or it is broken");
    uint32_t n = 0;
    check(enumerate(nullptr, &n, nullptr), "asking the loader for its extensions");
    std::vector<VkExtensionProperties> extensions(n);
    check(enumerate(nullptr, &n, extensions.data()), "asking the loader for its extensions");
    VkApplicationInfo application = {};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.pApplicationName = "assay";
    application.apiVersion = kVersionMin;
    VkInstanceCreateInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    if (lists(
            extensions,
            kPortability)) {  // drivers over another interface, such as MoltenVK, are only listed to who asks for them
      info.flags = VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
      info.enabledExtensionCount = 1;
      info.ppEnabledExtensionNames = &kPortability;
    }
    check(create(&info, nullptr, &instance_), "starting");
#define ASSAY_VULKAN_LOOK_UP(function)                                                          \
  functions_.function = reinterpret_cast<PFN_vk##function>(lookup_(instance_, "vk" #function)); \
  if (functions_.function == nullptr) throw Error(Errc::device, "Vulkan's loader lacks vk" #function);
    ASSAY_VULKAN_INSTANCE_FUNCTIONS(ASSAY_VULKAN_LOOK_UP)
#undef ASSAY_VULKAN_LOOK_UP
  } catch (...) {
    if (instance_ != VK_NULL_HANDLE && functions_.DestroyInstance != nullptr)
      functions_.DestroyInstance(instance_, nullptr);
    dlclose(library_);
    throw;
  }
}

Instance::~Instance() {
  functions_.DestroyInstance(instance_, nullptr);
  dlclose(library_);
}

void Instance::open(const std::string& library) {
  std::vector<std::string> names = {"libvulkan.so.1", "libvulkan.so", "libvulkan.1.dylib", "libMoltenVK.dylib"};
  if (!library.empty()) names = {library};
  for (const std::string& name : names) {
    library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) break;
  }
  if (library_ == nullptr) {
    throw Error(Errc::device, "Vulkan's loader was not found (" + names.front() +
                                  "); its package is called libvulkan1 or vulkan-loader");
  }
  lookup_ = reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library_, "vkGetInstanceProcAddr"));
  if (lookup_ != nullptr) return;
  dlclose(library_);
  throw Error(Errc::device, "Vulkan's loader lacks vkGetInstanceProcAddr: the file found is no loader");
}

std::vector<Facts> Instance::devices() const {
  uint32_t n = 0;
  check(functions_.EnumeratePhysicalDevices(instance_, &n, nullptr), "looking for devices");
  std::vector<VkPhysicalDevice> handles(n);
  check(functions_.EnumeratePhysicalDevices(instance_, &n, handles.data()), "looking for devices");
  handles.resize(n);
  std::vector<Facts> devices;
  for (const VkPhysicalDevice handle : handles) devices.push_back(facts_of(handle));
  return devices;
}

Facts Instance::facts_of(VkPhysicalDevice device) const {
  Facts f;
  f.handle = device;
  VkPhysicalDeviceDriverProperties driver = {};
  driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
  VkPhysicalDeviceMaintenance3Properties pieces = {};
  pieces.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES;
  pieces.pNext = &driver;
  VkPhysicalDeviceIDProperties id = {};
  id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES;
  driver.pNext = &id;
  VkPhysicalDeviceSubgroupProperties subgroups = {};
  subgroups.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
  id.pNext = &subgroups;
  VkPhysicalDeviceProperties2 properties = {};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = &pieces;
  functions_.GetPhysicalDeviceProperties2(device, &properties);
  const VkPhysicalDeviceProperties& p = properties.properties;
  f.name = p.deviceName;
  f.version = p.apiVersion;
  std::copy_n(id.deviceUUID, VK_UUID_SIZE, f.uuid.begin());
  std::copy_n(p.pipelineCacheUUID, VK_UUID_SIZE, f.cache_uuid.begin());
  f.driver_version = p.driverVersion, f.vendor = p.vendorID, f.kind = p.deviceID;
  f.driver = std::string(driver.driverName) + (driver.driverInfo[0] != 0 ? " " + std::string(driver.driverInfo) : "");
  f.is_software = p.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  f.shares_memory = f.is_software || p.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
  f.piece_bytes_max = pieces.maxMemoryAllocationSize;
  f.n_pieces_max = p.limits.maxMemoryAllocationCount;
  f.shared_bytes = p.limits.maxComputeSharedMemorySize;
  f.n_invocations_max = std::min(p.limits.maxComputeWorkGroupInvocations, p.limits.maxComputeWorkGroupSize[0]);
  f.has_shuffles = subgroups.subgroupSize >= kShuffledMin &&
                   (subgroups.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
                   (subgroups.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0;
  const auto lacks = [&f](const std::string& what) { f.refused += (f.refused.empty() ? "it lacks " : ", ") + what; };
  if (p.apiVersion < kVersionMin) {
    lacks("Vulkan " + version_text(kVersionMin) + " (it has " + version_text(p.apiVersion) + ")");
    return f;
  }

  VkPhysicalDeviceVulkan12Features features_12 = {};
  features_12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  VkPhysicalDeviceFeatures2 features = {};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &features_12;
  functions_.GetPhysicalDeviceFeatures2(device, &features);
  f.has_float64 = features.features.shaderFloat64 == VK_TRUE;
  if (features_12.bufferDeviceAddress != VK_TRUE) lacks("bufferDeviceAddress");
  const auto limit = [&](uint64_t found, uint64_t needed, const char* what) {
    if (found < needed)
      lacks(std::string(what) + " of " + std::to_string(needed) + " (it has " + std::to_string(found) + ")");
  };
  limit(p.limits.maxComputeWorkGroupInvocations, kInvocationsMin, "maxComputeWorkGroupInvocations");
  limit(p.limits.maxPushConstantsSize, kPushBytesMin, "maxPushConstantsSize");
  limit(p.limits.maxComputeSharedMemorySize, kSharedBytesMin, "maxComputeSharedMemorySize");

  uint32_t n = 0;
  functions_.GetPhysicalDeviceQueueFamilyProperties(device, &n, nullptr);
  std::vector<VkQueueFamilyProperties> families(n);
  functions_.GetPhysicalDeviceQueueFamilyProperties(device, &n, families.data());
  const auto computes = [](const VkQueueFamilyProperties& family) {
    return (family.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
  };
  const auto family = std::find_if(families.begin(), families.end(), computes);
  if (family == families.end()) lacks("a queue for computing");
  f.queue_family = static_cast<uint32_t>(family - families.begin());
  if (family != families.end() && family->timestampValidBits > 0)
    f.tick_ns = static_cast<double>(p.limits.timestampPeriod);

  n = 0;
  check(functions_.EnumerateDeviceExtensionProperties(device, nullptr, &n, nullptr),
        "asking a device for its extensions");
  std::vector<VkExtensionProperties> extensions(n);
  check(functions_.EnumerateDeviceExtensionProperties(device, nullptr, &n, extensions.data()),
        "asking a device for its extensions");
  f.has_portability = lists(extensions, kPortabilitySubset);
  f.has_budget = lists(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (lists(extensions, kDots)) find_dots(f);
  if (lists(extensions, kMatrices)) find_matrices(f);

  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {};
  budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  VkPhysicalDeviceMemoryProperties2 memory = {};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  if (f.has_budget) memory.pNext = &budget;
  functions_.GetPhysicalDeviceMemoryProperties2(device, &memory);
  f.memory = memory.memoryProperties;
  for (uint32_t i = 0; i < f.memory.memoryHeapCount; ++i) {
    if ((f.memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
    f.memory_bytes += static_cast<int64_t>(f.memory.memoryHeaps[i].size);
    if (f.has_budget)
      f.free_bytes += static_cast<int64_t>(budget.heapBudget[i] - std::min(budget.heapUsage[i], budget.heapBudget[i]));
  }
  return f;
}

// Fill the structure, and those that it leads to.
void Instance::ask_features(VkPhysicalDevice device, void* structure) const {
  VkPhysicalDeviceFeatures2 features = {};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = structure;
  functions_.GetPhysicalDeviceFeatures2(device, &features);
}
void Instance::ask_properties(VkPhysicalDevice device, void* structure) const {
  VkPhysicalDeviceProperties2 properties = {};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  properties.pNext = structure;
  functions_.GetPhysicalDeviceProperties2(device, &properties);
}

void Instance::find_dots(Facts& f) const {
  VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dots = {};
  dots.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR;
  ask_features(f.handle, &dots);
  VkPhysicalDeviceShaderIntegerDotProductPropertiesKHR speeds = {};
  speeds.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES_KHR;
  ask_properties(f.handle, &speeds);
  f.has_dots = dots.shaderIntegerDotProduct == VK_TRUE;
  f.has_fast_dots = f.has_dots && speeds.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE;
}

void Instance::find_matrices(Facts& f) const {
  VkPhysicalDeviceCooperativeMatrixFeaturesNV matrices = {};
  matrices.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV;
  VkPhysicalDeviceVulkan12Features features_12 = {};
  features_12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  features_12.pNext = &matrices;
  ask_features(f.handle, &features_12);
  VkPhysicalDeviceSubgroupProperties subgroups = {};
  subgroups.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
  ask_properties(f.handle, &subgroups);
  const auto lacks = [&f](bool is_so, const std::string& what) {
    if (is_so) f.matrices_lack += (f.matrices_lack.empty() ? "" : ", ") + what;
  };
  const uint32_t depth = matrix_depth_of(f.handle);
  lacks(matrices.cooperativeMatrix != VK_TRUE, "the feature itself");
  lacks(features_12.vulkanMemoryModel != VK_TRUE, "vulkanMemoryModel");
  lacks(features_12.shaderInt8 != VK_TRUE, "shaderInt8");
  lacks(subgroups.subgroupSize != kMatrixSubgroup,
        "subgroups of 32 (it has " + std::to_string(subgroups.subgroupSize) + ")");
  lacks(f.shared_bytes < kMatrixSharedBytes, "48 KiB of shared memory (it has " + std::to_string(f.shared_bytes) + ")");
  lacks(depth == 0, "16 x 16 outputs of signed bytes with sums of 32 bits");
  if (f.matrices_lack.empty()) f.matrix_depth = depth;
}

// Of products of 16 x 16 outputs; the most.
uint32_t Instance::matrix_depth_of(VkPhysicalDevice device) const {
  const auto enumerate = reinterpret_cast<PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesNV>(
      lookup_(instance_, "vkGetPhysicalDeviceCooperativeMatrixPropertiesNV"));
  uint32_t n = 0;
  if (enumerate == nullptr || enumerate(device, &n, nullptr) != VK_SUCCESS) return 0;
  VkCooperativeMatrixPropertiesNV empty = {};
  empty.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_NV;
  std::vector<VkCooperativeMatrixPropertiesNV> shapes(n, empty);
  if (enumerate(device, &n, shapes.data()) < 0) return 0;
  shapes.resize(std::min<size_t>(n, shapes.size()));
  uint32_t depth = 0;
  for (const VkCooperativeMatrixPropertiesNV& p : shapes) {
    const bool fits = p.MSize == 16 && p.NSize == 16 && (p.KSize == 16 || p.KSize == 32) &&
                      p.AType == VK_COMPONENT_TYPE_SINT8_NV && p.BType == VK_COMPONENT_TYPE_SINT8_NV &&
                      p.CType == VK_COMPONENT_TYPE_SINT32_NV && p.DType == VK_COMPONENT_TYPE_SINT32_NV &&
                      p.scope == VK_SCOPE_SUBGROUP_NV;
    if (fits) depth = std::max(depth, p.KSize);
  }
  return depth;
}

}  // namespace assay::backend::vulkan
