// See kv_cache.h.
#include "backend/vulkan/attention/kv_cache.h"

#include <string>

#include "assay/error.h"
#include "ops/attention/attention.h"

namespace assay::backend::vulkan {
namespace {

constexpr int64_t kAddressable = (int64_t{1} << 32) - 256;  // shaders count bytes in 32 bits

CacheRows make_rows(Device& device, ops::CacheType type, int64_t dim, int64_t n_kv_heads,
                    const ops::ExecutorOptions& options, const std::string& what) {
  if (type == ops::CacheType::q8_0 && dim % 32 != 0) {
    throw Error(Errc::unsupported, "KV cache type q8_0 for " + what +
                                       " needs a head dimension that is a multiple of 32, found " +
                                       std::to_string(dim));
  }
  CacheRows rows;
  rows.type = type;
  rows.dim = dim;
  rows.n_kv_heads = n_kv_heads;
  rows.position_bytes = n_kv_heads * ops::cache_row_bytes(type, dim);
  const int64_t n_positions = options.n_sequences * options.n_ctx;
  if (rows.position_bytes > 0 && n_positions > kAddressable / rows.position_bytes) {
    throw Error(Errc::unsupported, what + " of " + std::to_string(n_positions) +
                                       " positions of the cache take more than the 4 GiB that the Vulkan backend can "
                                       "address; a smaller context (-c) or fewer sequences fit");
  }
  rows.memory = device.allocate(static_cast<size_t>(n_positions * rows.position_bytes), Device::Place::device,
                                what + " of " + std::to_string(n_positions) + " positions of the cache");
  return rows;
}

}  // namespace

KvCache::KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options, Device& device)
    : layers_(layers), device_(device), n_ctx_(options.n_ctx) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string of = " of layer " + std::to_string(i);
    keys_.push_back(make_rows(device, options.cache_k, layers[i].head_dim, layers[i].n_kv_heads, options, "keys" + of));
    values_.push_back(
        make_rows(device, options.cache_v, layers[i].stored_v_dim(), layers[i].n_kv_heads, options, "values" + of));
    bytes_ += keys_.back().memory.size() + values_.back().memory.size();
  }
}

void KvCache::read(const CacheRows& rows, int64_t sequence, int64_t position, int64_t n,
                   std::span<std::byte> bytes) const {
  device_.read(rows.memory, static_cast<size_t>((sequence * n_ctx_ + position) * rows.position_bytes),
               bytes.first(static_cast<size_t>(n * rows.position_bytes)));
}

void KvCache::write(const CacheRows& rows, int64_t sequence, int64_t position, std::span<const std::byte> bytes) const {
  device_.write(rows.memory, static_cast<size_t>((sequence * n_ctx_ + position) * rows.position_bytes), bytes);
}

void KvCache::visit(int64_t sequence, int64_t n_positions,
                    const std::function<void(std::span<const std::byte>)>& sink) const {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < layers_.size(); ++i) {
    for (const CacheRows* rows : {&keys_[i], &values_[i]}) {
      bytes.resize(static_cast<size_t>(n_positions * rows->position_bytes));
      read(*rows, sequence, 0, n_positions, bytes);
      if (!bytes.empty()) sink(bytes);
    }
  }
}

}  // namespace assay::backend::vulkan
