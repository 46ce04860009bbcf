// One open device: its memory in few large pieces, commands that are recorded, sent and waited for, and pipelines made
// when they are first asked for. Buffers are addresses (bufferDeviceAddress): shaders are given them as push constants,
// there are no descriptors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/vulkan/device/free_list.h"
#include "backend/vulkan/device/instance.h"

namespace assay::backend::vulkan {

// How the device computes: the specialisation constants of num/num.glsl. As it stands, everything is done in integers,
// whatever the device does.
struct Arithmetic {
  enum class Fused : uint32_t { own, by_float64, by_integers };
  Fused fused = Fused::by_integers;
  bool flushes = true, own_quotient = true, own_root = true, own_halves = true;  // own_: made by us
  bool operator==(const Arithmetic&) const = default;
};

class Device;

// Memory of a device, or of the host that the device sees. Must not outlive its device.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(device_, other.device_), std::swap(piece_, other.piece_), std::swap(offset_, other.offset_),
        std::swap(bytes_, other.bytes_);
    std::swap(address_, other.address_), std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~Buffer();

  VkDeviceAddress address() const noexcept { return address_; }
  std::byte* mapped() const noexcept { return mapped_; }  // null where the host cannot see it
  template <class T>
  T* as() const noexcept {
    return reinterpret_cast<T*>(mapped_);
  }
  size_t size() const noexcept { return bytes_; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  size_t piece_ = 0, offset_ = 0, bytes_ = 0;
  VkDeviceAddress address_ = 0;
  std::byte* mapped_ = nullptr;
};

// Commands that were recorded once, to be sent as often as wanted. Must not outlive its device, nor what its steps
// refer to.
class Recording {
 public:
  Recording() = default;
  Recording(Recording&& other) noexcept { *this = std::move(other); }
  Recording& operator=(Recording&& other) noexcept {
    std::swap(device_, other.device_), std::swap(commands_, other.commands_);
    return *this;
  }
  ~Recording();
  bool is_empty() const noexcept { return device_ == nullptr; }

 private:
  friend class Device;
  Device* device_ = nullptr;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
};

// Shared memory of attention/attention_tile.comp with so many queries.
inline constexpr int64_t kTileQueriesMin = 16, kTileQueriesMax = 32;
constexpr int64_t attention_tile_bytes(int64_t n_queries) noexcept {
  constexpr int64_t kSegment = 256, kStageBytes = 8192, kStageElements = 8, kOfQuery = 4 + 3 + 2, kRest = 16;
  return 4 * n_queries * (kSegment + kStageElements + kOfQuery) + kStageBytes + kRest;
}
inline constexpr int64_t kGroupsMax = 65535;  // along one axis, on every device

// Values of the specialisation constants 10, 11, ..
using Constants = std::vector<uint32_t>;

class Device {
 public:
  // number: among Instance::devices(). Error(device) for one that there is not, or that is refused. apart: as if the
  // host did not see the device's memory, for tests.
  Device(std::unique_ptr<const Instance> instance, int number, bool apart = false);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Facts& facts() const noexcept { return facts_; }
  const Arithmetic& arithmetic() const noexcept { return arithmetic_; }
  void set_arithmetic(const Arithmetic& arithmetic) { arithmetic_ = arithmetic; }
  // Whether shaders take the device's instruction for dots of bytes; at first, where it has a fast one.
  bool uses_dots() const noexcept { return uses_dots_; }
  void set_uses_dots(bool uses) noexcept { uses_dots_ = uses && facts_.has_dots; }
  // Whether products of few tokens hand sums from invocation to invocation; at first, where it can.
  bool uses_shuffles() const noexcept { return uses_shuffles_; }
  void set_uses_shuffles(bool uses) noexcept { uses_shuffles_ = uses && facts_.has_shuffles; }
  // How deep the cooperative matrices are that products of many tokens take, 16 or 32; 0: they take none. Where the
  // device has none, as tests ask for, loops stand in their place.
  uint32_t matrix_depth() const noexcept { return matrix_depth_; }
  void set_matrix_depth(uint32_t depth) noexcept { matrix_depth_ = depth; }
  // Outputs of a product that an invocation has along each side of its tile: many where they fit into registers, one
  // where a multiply-add is a page of instructions, since drivers write them all out.
  int64_t tile_side() const noexcept {
    return tile_side_ > 0 ? tile_side_ : arithmetic_.fused == Arithmetic::Fused::own ? 4 : 1;
  }
  // Whether attention of many tokens goes by tiles: they want shared memory, and a multiply-add that is not of integers.
  bool has_attention_tiles() const noexcept {
    return arithmetic_.fused != Arithmetic::Fused::by_integers &&
           facts_.shared_bytes >= attention_tile_bytes(kTileQueriesMin);
  }
  void set_tile_side(int64_t side) noexcept { tile_side_ = side; }  // for tests

  enum class Place { device, host };
  // what: named in the Error(out_of_memory), which has need and have. Not cleared.
  Buffer allocate(size_t bytes, Place place, const std::string& what);
  // Copies, after everything that was recorded. Neither may be called while commands are being recorded by a caller who
  // has not sent them.
  void write(const Buffer& to, size_t offset, std::span<const std::byte> bytes);
  void read(const Buffer& from, size_t offset, std::span<std::byte> bytes);

  // Recording: each step sees what those before it wrote, but for the other steps of set_together. push: a struct as
  // the shader has it. x: workgroups; beyond kGroupsMax of them they lie in rows of as many, along z.
  template <class Push>
  void dispatch(std::string_view shader, const Constants& constants, const Push& push, int64_t x, int64_t y = 1) {
    static_assert(std::is_trivially_copyable_v<Push> && sizeof(Push) <= 128);
    dispatch_bytes(shader, constants, std::as_bytes(std::span(&push, 1)), x, y);
  }
  void copy(const Buffer& from, size_t from_offset, const Buffer& to, size_t to_offset, size_t bytes);
  // From here to the same with false: steps of which none reads or writes what another of them writes.
  void set_together(bool together) noexcept { is_together_ = together, has_first_ = false; }
  void finish();     // sends what was recorded, if anything, and waits for its end
  Recording keep();  // what was recorded, which is not sent; empty where there is nothing
  void run(
      std::span<const Recording* const> recordings);  // one after the other, each sent by itself; waits for their end
  // Recordings from here on measure themselves, where the device has a clock (Facts::tick_ns).
  void set_timed(bool timed) noexcept { is_timed_ = timed && facts_.tick_ns > 0; }
  int64_t run_timed(const Recording& recording);  // one of those, in nanoseconds
  void abandon() noexcept;                        // forgets what was recorded
  // Pipelines as the driver compiled them, into the user's cache (pipeline_cache.h), where there are new ones. What is
  // wrong with that is said by cache_note() and by nobody else.
  void keep_pipelines() noexcept;
  const std::string& cache_note() const noexcept { return cache_note_; }  // of that file; empty: nothing to say

 private:
  friend class Buffer;
  friend class Recording;
  struct Piece {
    VkDeviceMemory memory = VK_NULL_HANDLE;
    VkBuffer buffer = VK_NULL_HANDLE;
    VkDeviceAddress address = 0;
    std::byte* mapped = nullptr;
    Place place = Place::device;
    FreeList free;
  };

  void open();
  void close() noexcept;
  void make_commands();
  void make_pipeline_cache();
  size_t make_piece(size_t bytes, Place place, const std::string& what);
  uint32_t memory_type(Place place, uint32_t allowed) const;
  void release(const Buffer& buffer) noexcept;
  void release(VkCommandBuffer commands) noexcept;
  void make_command_buffer();
  enum class Step { dispatch, copy };
  void begin(Step step);
  void end();
  void send(VkCommandBuffer commands, VkFence fence);
  void wait();
  // Before such a step, after those recorded since the last one; or before the host and whatever is sent next.
  void barrier(Step next);
  void last_barrier();
  void dispatch_bytes(std::string_view shader, const Constants& constants, std::span<const std::byte> push, int64_t x,
                      int64_t y);
  VkPipeline pipeline(std::string_view shader, const Constants& constants);

  std::unique_ptr<const Instance> instance_;
  Facts facts_;
  Arithmetic arithmetic_;
  VkDevice device_ = VK_NULL_HANDLE;
  DeviceFunctions vk_;
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkCommandBuffer commands_ = VK_NULL_HANDLE;
  VkFence fence_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  bool is_recording_ = false, is_together_ = false, has_first_ = false;  // has_first_: of the steps together
  bool uses_dots_ = false, uses_shuffles_ = false, is_timed_ = false;
  bool has_copies_ = false;  // since the last barrier
  VkQueryPool times_ = VK_NULL_HANDLE;
  VkPipelineCache compiled_ = VK_NULL_HANDLE;
  std::vector<std::byte> compiled_before_;  // what it began with
  size_t n_kept_ = 0;                       // pipelines that are in the user's cache
  std::string cache_note_;
  int64_t tile_side_ = 0;
  uint32_t matrix_depth_ = 0;
  std::vector<Piece> pieces_;
  std::map<std::pair<std::string, Constants>, VkPipeline> pipelines_;  // the constants with those of the arithmetic
  Buffer staging_;
};

}  // namespace assay::backend::vulkan
