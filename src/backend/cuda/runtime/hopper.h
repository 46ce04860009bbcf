// What the kernels that are made for compute capability 9.0 alone (sm_90a) need of a device beside their arguments.
#pragma once

#include <cstdint>

#include "backend/cuda/runtime/device_memory.h"

namespace assay::backend::cuda {

// A view; on other devices n_processors is 0, and the kernels made for all devices run.
struct Hopper {
  int32_t n_processors = 0;
  std::byte* scratch = nullptr;  // kHopperScratchBytes for each processor: sums that wait for their neighbours
  std::byte* parts = nullptr;    // of products whose tiles are split: sums of at most kHopperPartsEach parts of a tile
                                 // for each processor,
  uint32_t* arrived = nullptr;   // and of every tile, how many of them are there; 0 between kernels
  void* encode_map = nullptr;    // the driver's cuTensorMapEncodeTiled
};
inline constexpr size_t kHopperScratchBytes = 2 * 128 * 128 * sizeof(float);
inline constexpr int kHopperPartsEach = 3;
inline constexpr size_t kHopperPartBytes = 128 * 128 * sizeof(float);

// Multiprocessors of the current device, 0 where it is no Hopper.
int hopper_processors();

// The driver's cuTensorMapEncodeTiled; null where it has no such function.
void* find_map_encoder();

class HopperMemory {
 public:
  HopperMemory() = default;
  // Of the current device; wanted: whether any of those kernels may be asked for.
  explicit HopperMemory(bool wanted);

  const Hopper& view() const noexcept { return view_; }
  size_t bytes() const noexcept { return scratch_.size() + parts_.size() + arrived_.size(); }

 private:
  Hopper view_;
  DeviceBuffer scratch_, parts_, arrived_;
};

}  // namespace assay::backend::cuda
