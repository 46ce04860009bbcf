// See device.h.
#include "backend/vulkan/device/device.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "assay/error.h"
#include "backend/vulkan/device/pipeline_cache.h"
#include "backend/vulkan/device/spirv.h"

namespace assay::backend::vulkan {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 20, kHostPieceBytes = size_t{4} << 20, kStagingBytes = size_t{8} << 20;
constexpr uint32_t kPushBytes = 128;

size_t aligned(size_t bytes) {
  return std::max<size_t>(1, (bytes + FreeList::kAlignment - 1) / FreeList::kAlignment) * FreeList::kAlignment;
}

}  // namespace

Buffer::~Buffer() {
  if (device_ != nullptr) device_->release(*this);
}

Recording::~Recording() {
  if (device_ != nullptr) device_->release(commands_);
}

Device::Device(std::unique_ptr<const Instance> instance, int number, bool apart) : instance_(std::move(instance)) {
  const std::vector<Facts> devices = instance_->devices();
  if (number < 0 || static_cast<size_t>(number) >= devices.size()) {
    throw Error(Errc::device, "Vulkan device " + std::to_string(number) + ": there are " +
                                  std::to_string(devices.size()) + " here, numbered from 0 (assay devices lists them)");
  }
  facts_ = devices[static_cast<size_t>(number)];
  if (apart) facts_.shares_memory = false;
  uses_dots_ = facts_.has_fast_dots;
  uses_shuffles_ = facts_.has_shuffles;
  matrix_depth_ = facts_.matrix_depth;
  if (!facts_.refused.empty()) {
    throw Error(Errc::device, "Vulkan device " + std::to_string(number) + " (" + facts_.name + ", " + facts_.driver +
                                  "): " + facts_.refused +
                                  "; another device, a newer driver or --backend cpu may serve");
  }
  try {
    open();
    make_commands();
    make_pipeline_cache();
    staging_ = allocate(kStagingBytes, Place::host, "copies");
  } catch (...) {
    close();
    throw;
  }
}

Device::~Device() {
  keep_pipelines();
  close();
}

void Device::open() {
  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue = {};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = facts_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkPhysicalDeviceVulkan12Features features_12 = {};
  features_12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  features_12.bufferDeviceAddress = VK_TRUE;
  VkPhysicalDeviceFeatures2 features = {};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &features_12;
  features.features.shaderFloat64 = facts_.has_float64 ? VK_TRUE : VK_FALSE;
  VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dots = {};
  dots.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR;
  dots.shaderIntegerDotProduct = VK_TRUE;
  std::vector<const char*> extensions;
  if (facts_.has_portability)
    extensions.push_back("VK_KHR_portability_subset");  // has to be asked for where it is offered
  if (facts_.has_dots) {
    extensions.push_back(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    features_12.pNext = &dots;
  }
  VkPhysicalDeviceCooperativeMatrixFeaturesNV matrices = {};
  matrices.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV;
  matrices.cooperativeMatrix = VK_TRUE;
  if (facts_.matrix_depth > 0) {
    extensions.push_back(VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME);
    features_12.vulkanMemoryModel = features_12.shaderInt8 = VK_TRUE;
    matrices.pNext = features_12.pNext;
    features_12.pNext = &matrices;
  }
  VkDeviceCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  check(instance_->functions().CreateDevice(facts_.handle, &info, nullptr, &device_), "opening " + facts_.name);
#define ASSAY_VULKAN_LOOK_UP(function)                                                                       \
  vk_.function =                                                                                             \
      reinterpret_cast<PFN_vk##function>(instance_->functions().GetDeviceProcAddr(device_, "vk" #function)); \
  if (vk_.function == nullptr) throw Error(Errc::device, "the Vulkan driver of " + facts_.name + " lacks vk" #function);
  ASSAY_VULKAN_DEVICE_FUNCTIONS(ASSAY_VULKAN_LOOK_UP)
#undef ASSAY_VULKAN_LOOK_UP
}

void Device::make_commands() {
  vk_.GetDeviceQueue(device_, facts_.queue_family, 0, &queue_);
  VkCommandPoolCreateInfo pool = {};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = facts_.queue_family;
  check(vk_.CreateCommandPool(device_, &pool, nullptr, &pool_), "making a pool of commands");
  make_command_buffer();
  VkFenceCreateInfo fence = {};
  fence.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
  check(vk_.CreateFence(device_, &fence, nullptr, &fence_), "making a fence");
  VkQueryPoolCreateInfo times = {};
  times.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  times.queryType = VK_QUERY_TYPE_TIMESTAMP;
  times.queryCount = 2;
  if (facts_.tick_ns > 0) check(vk_.CreateQueryPool(device_, &times, nullptr, &times_), "making a clock");
  const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushBytes};
  VkPipelineLayoutCreateInfo layout = {};
  layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout.pushConstantRangeCount = 1;
  layout.pPushConstantRanges = &range;
  check(vk_.CreatePipelineLayout(device_, &layout, nullptr, &layout_), "making a pipeline's layout");
}

void Device::make_pipeline_cache() {
  compiled_before_ = read_pipeline_cache(pipeline_cache_path(facts_), facts_, cache_note_);
  VkPipelineCacheCreateInfo cache = {};
  cache.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  cache.initialDataSize = compiled_before_.size();
  cache.pInitialData = compiled_before_.data();
  if (vk_.CreatePipelineCache(device_, &cache, nullptr, &compiled_) == VK_SUCCESS) return;
  if (!compiled_before_.empty()) cache_note_ = "compiled shaders of earlier runs are not used: the driver refuses them";
  compiled_before_.clear();
  cache.initialDataSize = 0, cache.pInitialData = nullptr;
  check(vk_.CreatePipelineCache(device_, &cache, nullptr, &compiled_), "making a cache of pipelines");
}

void Device::keep_pipelines() noexcept try {
  if (compiled_ == VK_NULL_HANDLE || n_kept_ == pipelines_.size()) return;
  n_kept_ = pipelines_.size();
  size_t n = 0;
  if (vk_.GetPipelineCacheData(device_, compiled_, &n, nullptr) != VK_SUCCESS) return;
  std::vector<std::byte> bytes(n);
  if (vk_.GetPipelineCacheData(device_, compiled_, &n, bytes.data()) != VK_SUCCESS) return;
  bytes.resize(n);
  if (bytes == compiled_before_) return;
  write_pipeline_cache(pipeline_cache_path(facts_), facts_, bytes);
  compiled_before_ = std::move(bytes);
} catch (const std::exception& e) {  // the next run compiles again
  cache_note_ = std::string("compiled shaders could not be kept: ") + e.what();
}

void Device::make_command_buffer() {
  VkCommandBufferAllocateInfo commands = {};
  commands.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  commands.commandPool = pool_;
  commands.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  commands.commandBufferCount = 1;
  check(vk_.AllocateCommandBuffers(device_, &commands, &commands_), "making commands");
}

void Device::release(VkCommandBuffer commands) noexcept { vk_.FreeCommandBuffers(device_, pool_, 1, &commands); }

void Device::close() noexcept {
  if (device_ == VK_NULL_HANDLE) return;
  if (vk_.DeviceWaitIdle != nullptr) vk_.DeviceWaitIdle(device_);
  staging_ = Buffer();
  for (const auto& [key, pipeline] : pipelines_) vk_.DestroyPipeline(device_, pipeline, nullptr);
  for (const Piece& piece : pieces_) {
    vk_.DestroyBuffer(device_, piece.buffer, nullptr);
    vk_.FreeMemory(device_, piece.memory, nullptr);
  }
  if (compiled_ != VK_NULL_HANDLE) vk_.DestroyPipelineCache(device_, compiled_, nullptr);
  if (layout_ != VK_NULL_HANDLE) vk_.DestroyPipelineLayout(device_, layout_, nullptr);
  if (times_ != VK_NULL_HANDLE) vk_.DestroyQueryPool(device_, times_, nullptr);
  if (fence_ != VK_NULL_HANDLE) vk_.DestroyFence(device_, fence_, nullptr);
  if (pool_ != VK_NULL_HANDLE) vk_.DestroyCommandPool(device_, pool_, nullptr);
  if (vk_.DestroyDevice != nullptr) vk_.DestroyDevice(device_, nullptr);
  device_ = VK_NULL_HANDLE;
}

uint32_t Device::memory_type(Place place, uint32_t allowed) const {
  constexpr VkMemoryPropertyFlags kSeen = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
                                  kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  std::vector<VkMemoryPropertyFlags> wishes;  // the best first
  if (place == Place::host) wishes = {kSeen | kCached, kSeen};
  if (place == Place::device && facts_.shares_memory) wishes = {kLocal | kSeen | kCached, kLocal | kSeen};
  if (place == Place::device) wishes.insert(wishes.end(), {kLocal, 0});
  for (const VkMemoryPropertyFlags wish : wishes) {
    for (uint32_t i = 0; i < facts_.memory.memoryTypeCount; ++i) {
      if ((allowed >> i & 1u) != 0 && (facts_.memory.memoryTypes[i].propertyFlags & wish) == wish) return i;
    }
  }
  throw Error(Errc::device, "Vulkan device " + facts_.name + ": it has no memory of the kind that is needed");
}

size_t Device::make_piece(size_t bytes, Place place, const std::string& what) {
  const auto refuse = [&](const std::string& found) {
    throw Error(Errc::out_of_memory, what + ": needs " + std::to_string(bytes) + " bytes of " + facts_.name + ", " +
                                         found + "; a smaller context (-c), or fewer layers on it (-ngl), needs less");
  };
  if (bytes > facts_.piece_bytes_max)
    refuse("which gives " + std::to_string(facts_.piece_bytes_max) + " at most in one piece");
  if (pieces_.size() >= facts_.n_pieces_max)
    refuse("which gives " + std::to_string(facts_.n_pieces_max) + " pieces at most");
  Piece piece;
  piece.place = place;
  VkBufferCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = bytes;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
  check(vk_.CreateBuffer(device_, &info, nullptr, &piece.buffer), "making a buffer for " + what);
  pieces_.push_back(piece);  // from here on close() destroys it
  Piece& kept = pieces_.back();
  VkMemoryRequirements needs = {};
  vk_.GetBufferMemoryRequirements(device_, kept.buffer, &needs);
  VkMemoryAllocateFlagsInfo flags = {};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo memory = {};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  memory.pNext = &flags;
  memory.allocationSize = needs.size;
  memory.memoryTypeIndex = memory_type(place, needs.memoryTypeBits);
  const VkResult result = vk_.AllocateMemory(device_, &memory, nullptr, &kept.memory);
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY) {
    refuse("which has " + std::to_string(facts_.memory_bytes) + " in all" +
           (facts_.has_budget ? ", " + std::to_string(facts_.free_bytes) + " free when it was opened" : ""));
  }
  check(result, "taking memory for " + what);
  check(vk_.BindBufferMemory(device_, kept.buffer, kept.memory, 0), "taking memory for " + what);
  if ((facts_.memory.memoryTypes[memory.memoryTypeIndex].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0 &&
      (place == Place::host || facts_.shares_memory)) {
    void* mapped = nullptr;
    check(vk_.MapMemory(device_, kept.memory, 0, VK_WHOLE_SIZE, 0, &mapped), "seeing memory for " + what);
    kept.mapped = static_cast<std::byte*>(mapped);
  }
  VkBufferDeviceAddressInfo address = {};
  address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  address.buffer = kept.buffer;
  kept.address = vk_.GetBufferDeviceAddress(device_, &address);
  kept.free = FreeList(bytes);
  return pieces_.size() - 1;
}

Buffer Device::allocate(size_t bytes, Place place, const std::string& what) {
  const size_t taken = aligned(bytes + sizeof(uint32_t));  // a word read at the last two bytes reaches beyond
  std::optional<size_t> offset;
  size_t i = 0;
  for (; i < pieces_.size(); ++i) {
    if (pieces_[i].place == place && (offset = pieces_[i].free.take(taken))) break;
  }
  if (!offset) {
    i = make_piece(
        std::max(taken, std::min<size_t>(place == Place::host ? kHostPieceBytes : kPieceBytes, facts_.piece_bytes_max)),
        place, what);
    offset = pieces_[i].free.take(taken);
  }
  Buffer buffer;
  buffer.device_ = this;
  buffer.piece_ = i;
  buffer.offset_ = *offset;
  buffer.bytes_ = bytes;
  buffer.address_ = pieces_[i].address + *offset;
  buffer.mapped_ = pieces_[i].mapped == nullptr ? nullptr : pieces_[i].mapped + *offset;
  return buffer;
}

void Device::release(const Buffer& buffer) noexcept {
  pieces_[buffer.piece_].free.give_back(buffer.offset_, aligned(buffer.bytes_ + sizeof(uint32_t)));
}

void Device::write(const Buffer& to, size_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (to.mapped() != nullptr) {
    std::memcpy(to.mapped() + offset, bytes.data(), bytes.size());
    return;
  }
  for (size_t done = 0; done < bytes.size(); done += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, bytes.size() - done);
    std::memcpy(staging_.mapped(), bytes.data() + done, n);
    copy(staging_, 0, to, offset + done, n);
    finish();
  }
}

void Device::read(const Buffer& from, size_t offset, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  if (from.mapped() != nullptr) {
    std::memcpy(bytes.data(), from.mapped() + offset, bytes.size());
    return;
  }
  for (size_t done = 0; done < bytes.size(); done += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, bytes.size() - done);
    copy(from, offset + done, staging_, 0, n);
    finish();
    std::memcpy(bytes.data() + done, staging_.mapped(), n);
  }
}

void Device::begin(Step step) {
  if (is_recording_) {
    if (!is_together_ || !has_first_) barrier(step);
    has_first_ = true;
  } else {
    VkCommandBufferBeginInfo info = {};
    info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    check(vk_.BeginCommandBuffer(commands_, &info), "beginning commands");  // forgets what it held
    is_recording_ = has_first_ = true;
    has_copies_ = false;
    if (is_timed_) {
      vk_.CmdResetQueryPool(commands_, times_, 0, 2);
      vk_.CmdWriteTimestamp(commands_, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, times_, 0);
    }
  }
  has_copies_ = has_copies_ || step == Step::copy;
}

// Between dispatches no more than what they need: copies and the host make a barrier several times as long.
void Device::barrier(Step next) {
  const bool copies = has_copies_ || next == Step::copy;
  VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT;
  VkMemoryBarrier memory = {};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
  if (copies) {
    stages |= VK_PIPELINE_STAGE_TRANSFER_BIT;
    memory.srcAccessMask |= VK_ACCESS_TRANSFER_WRITE_BIT;
    memory.dstAccessMask |= VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  }
  vk_.CmdPipelineBarrier(commands_, stages, stages, 0, 1, &memory, 0, nullptr, 0, nullptr);
  has_copies_ = false;
}

void Device::last_barrier() {
  constexpr VkPipelineStageFlags kStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  VkMemoryBarrier memory = {};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  memory.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                         VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_READ_BIT;
  vk_.CmdPipelineBarrier(commands_, kStages, kStages | VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &memory, 0, nullptr, 0,
                         nullptr);
}

void Device::copy(const Buffer& from, size_t from_offset, const Buffer& to, size_t to_offset, size_t bytes) {
  if (bytes == 0) return;
  begin(Step::copy);
  const VkBufferCopy region = {from.offset_ + from_offset, to.offset_ + to_offset, bytes};
  vk_.CmdCopyBuffer(commands_, pieces_[from.piece_].buffer, pieces_[to.piece_].buffer, 1, &region);
}

void Device::dispatch_bytes(std::string_view shader, const Constants& constants, std::span<const std::byte> push,
                            int64_t x, int64_t y) {
  if (x <= 0 || y <= 0) return;
  const int64_t z = (x + kGroupsMax - 1) / kGroupsMax;
  if (z > kGroupsMax || y > kGroupsMax) {
    throw Error(Errc::unsupported, "Vulkan, " + std::string(shader) + ": a step of " + std::to_string(x) + " x " +
                                       std::to_string(y) +
                                       " workgroups is more than a device takes; use smaller chunks (-ub)");
  }
  const VkPipeline made = pipeline(shader, constants);
  begin(Step::dispatch);
  vk_.CmdBindPipeline(commands_, VK_PIPELINE_BIND_POINT_COMPUTE, made);
  vk_.CmdPushConstants(commands_, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, static_cast<uint32_t>(push.size()),
                       push.data());
  vk_.CmdDispatch(commands_, static_cast<uint32_t>(z == 1 ? x : (x + z - 1) / z), static_cast<uint32_t>(y),
                  static_cast<uint32_t>(z));
}

void Device::end() {
  last_barrier();
  if (is_timed_) vk_.CmdWriteTimestamp(commands_, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, times_, 1);
  is_recording_ = false;
  check(vk_.EndCommandBuffer(commands_), "ending commands");
}

void Device::send(VkCommandBuffer commands, VkFence fence) {
  VkSubmitInfo submit = {};
  submit.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  submit.commandBufferCount = 1;
  submit.pCommandBuffers = &commands;
  check(vk_.QueueSubmit(queue_, 1, &submit, fence), "sending commands to " + facts_.name);
}

void Device::wait() {
  // A token of a small model takes a millisecond or two: to be woken up would be a good part of that. Software computes
  // on the cores that would ask.
  constexpr auto kAsking = std::chrono::milliseconds(4);
  VkResult result = VK_TIMEOUT;
  const auto begin = std::chrono::steady_clock::now();
  while (!facts_.is_software && result == VK_TIMEOUT && std::chrono::steady_clock::now() - begin < kAsking)
    result = vk_.WaitForFences(device_, 1, &fence_, VK_TRUE, 0);
  if (result == VK_TIMEOUT) result = vk_.WaitForFences(device_, 1, &fence_, VK_TRUE, UINT64_MAX);
  check(result, "waiting for " + facts_.name);
  check(vk_.ResetFences(device_, 1, &fence_), "waiting for " + facts_.name);
}

void Device::finish() {
  if (!is_recording_) return;
  end();
  send(commands_, fence_);
  wait();
}

void Device::abandon() noexcept {
  if (is_recording_) vk_.EndCommandBuffer(commands_);
  is_recording_ = is_together_ = false;
}

Recording Device::keep() {
  Recording kept;
  if (!is_recording_) return kept;
  end();
  kept.commands_ = commands_;
  kept.device_ = this;
  commands_ = VK_NULL_HANDLE;
  make_command_buffer();
  return kept;
}

void Device::run(std::span<const Recording* const> recordings) {
  for (size_t i = 0; i < recordings.size(); ++i)
    send(recordings[i]->commands_, i + 1 == recordings.size() ? fence_ : VK_NULL_HANDLE);
  if (!recordings.empty()) wait();
}

int64_t Device::run_timed(const Recording& recording) {
  send(recording.commands_, fence_);
  wait();
  uint64_t ticks[2] = {};
  check(vk_.GetQueryPoolResults(device_, times_, 0, 2, sizeof(ticks), ticks, sizeof(uint64_t),
                                VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
        "reading the clock of " + facts_.name);
  return static_cast<int64_t>(static_cast<double>(ticks[1] - ticks[0]) * facts_.tick_ns);
}

VkPipeline Device::pipeline(std::string_view shader, const Constants& constants) {
  Constants values = {arithmetic_.fused == Arithmetic::Fused::own ? 0u : 2u, arithmetic_.flushes ? 1u : 0u,
                      arithmetic_.own_quotient ? 1u : 0u, arithmetic_.own_root ? 1u : 0u,
                      arithmetic_.own_halves ? 1u : 0u};
  const size_t n_arithmetic = values.size();
  values.insert(values.end(), constants.begin(), constants.end());
  const auto found = pipelines_.find({std::string(shader), values});
  if (found != pipelines_.end()) return found->second;
  const Shader& source = find_shader(shader);
  const bool is_plain = !arithmetic_.flushes && arithmetic_.fused == Arithmetic::Fused::own,
             by_float64 = !arithmetic_.flushes && arithmetic_.fused == Arithmetic::Fused::by_float64;
  const std::vector<uint32_t> words = uncontracted(is_plain     ? source.plain
                                                   : by_float64 ? source.with_float64
                                                                : source.with_integers);
  VkShaderModuleCreateInfo module_info = {};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = words.size() * sizeof(uint32_t);
  module_info.pCode = words.data();
  const std::string doing = "compiling the shader " + std::string(shader) + " (" + facts_.driver +
                            "; a newer driver may do better, --backend cpu needs none)";
  VkShaderModule module = VK_NULL_HANDLE;
  check(vk_.CreateShaderModule(device_, &module_info, nullptr, &module), doing);
  std::vector<VkSpecializationMapEntry> entries;
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t id = i < n_arithmetic ? i : 10 + i - n_arithmetic;
    entries.push_back({static_cast<uint32_t>(id), static_cast<uint32_t>(i * sizeof(uint32_t)), sizeof(uint32_t)});
  }
  const VkSpecializationInfo specialisation = {static_cast<uint32_t>(entries.size()), entries.data(),
                                               values.size() * sizeof(uint32_t), values.data()};
  VkComputePipelineCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &specialisation;
  info.layout = layout_;
  VkPipeline made = VK_NULL_HANDLE;
  const VkResult result = vk_.CreateComputePipelines(device_, compiled_, 1, &info, nullptr, &made);
  vk_.DestroyShaderModule(device_, module, nullptr);
  check(result, doing);
  pipelines_.emplace(std::pair(std::string(shader), std::move(values)), made);
  return made;
}

}  // namespace assay::backend::vulkan
