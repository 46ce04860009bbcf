// The KV cache on the device: each layer's keys and values as cache.glsl has them, position by position, in the bytes
// that digests see.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/vulkan/device/device.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::vulkan {

struct CacheRows {  // keys or values of a layer
  Buffer memory;
  ops::CacheType type = ops::CacheType::f16;
  int64_t dim = 0, n_kv_heads = 0;
  int64_t position_bytes = 0;  // of all heads
};

class KvCache {
 public:
  // Error(out_of_memory) with need and have, Error(unsupported) for a layer that is too long for 32 bits.
  KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options, Device& device);

  const CacheRows& keys(int32_t layer) const { return keys_[static_cast<size_t>(layer)]; }
  // Of a layer whose values lie in its keys these.
  const CacheRows& values(int32_t layer) const {
    return layers_[static_cast<size_t>(layer)].values_in_keys ? keys(layer) : values_[static_cast<size_t>(layer)];
  }
  const ops::CacheLayer& layer(int32_t layer) const { return layers_[static_cast<size_t>(layer)]; }
  size_t bytes() const noexcept { return bytes_; }

  // n positions of a sequence from `position` on, as they are stored.
  void read(const CacheRows& rows, int64_t sequence, int64_t position, int64_t n, std::span<std::byte> bytes) const;
  void write(const CacheRows& rows, int64_t sequence, int64_t position, std::span<const std::byte> bytes) const;
  void visit(int64_t sequence, int64_t n_positions, const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  std::span<const ops::CacheLayer> layers_;
  Device& device_;
  int64_t n_ctx_;
  size_t bytes_ = 0;
  std::vector<CacheRows> keys_, values_;
};

}  // namespace assay::backend::vulkan
