// Layout of the device's KV cache, and its bits in the contract's order.
#include "backend/cuda/attention/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "assay/error.h"

namespace assay::backend::cuda {
namespace {

constexpr int64_t kQ8Elements = 32;
constexpr int64_t kQ8Bytes = 34;

int64_t round_up(int64_t n, int64_t multiple) noexcept { return (n + multiple - 1) / multiple * multiple; }

int64_t element_bytes(ops::CacheType type) noexcept { return type == ops::CacheType::f32 ? 4 : type == ops::CacheType::f16 ? 2 : 1; }

void check_type(ops::CacheType type, int64_t head_dim, const char* which, size_t layer) {
  if (type == ops::CacheType::q8_0 && head_dim % kQ8Elements != 0) {
    throw Error(Errc::unsupported, std::string("KV cache type q8_0 for ") + which + " needs a head dimension that is a multiple of 32; layer " +
                                       std::to_string(layer) + " has " + std::to_string(head_dim));
  }
}

// The layers with offsets from null in place of addresses, and the bytes of all.
struct Layout {
  std::vector<CacheView> layers;
  size_t bytes = 0;
};

Layout lay_out(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options) {
  Layout layout;
  const int64_t n_positions = round_up(options.n_ctx, kKeyTile);
  for (const ops::CacheLayer& layer : layers) {
    check_type(options.cache_k, layer.head_dim, "K", layout.layers.size());
    check_type(options.cache_v, layer.stored_v_dim(), "V", layout.layers.size());
    CacheView view;
    view.type_k = options.cache_k;
    view.type_v = options.cache_v;
    view.n_kv_heads = layer.n_kv_heads;
    view.head_dim = layer.head_dim;
    view.v_dim = layer.v_dim();
    view.values_in_keys = layer.values_in_keys;
    const int64_t stored = layer.stored_v_dim();
    view.n_pieces = round_up(layer.head_dim * element_bytes(view.type_k), kPieceBytes) / kPieceBytes;
    view.k_tile_bytes = view.n_pieces * kKeyTile * kPieceBytes;
    view.v_row_bytes = stored * element_bytes(view.type_v);
    if (view.type_k == ops::CacheType::q8_0) view.k_tile_bytes += layer.head_dim / kQ8Elements * kKeyTile * 2;
    if (view.type_v == ops::CacheType::q8_0) view.v_row_bytes += stored / kQ8Elements * 2;
    view.v_row_bytes = round_up(view.v_row_bytes, kPieceBytes);
    view.k_head_bytes = n_positions / kKeyTile * view.k_tile_bytes;
    view.v_head_bytes = n_positions * view.v_row_bytes;
    const int64_t n_heads = options.n_sequences * layer.n_kv_heads;
    view.k = reinterpret_cast<std::byte*>(layout.bytes);
    layout.bytes += static_cast<size_t>(round_up(n_heads * view.k_head_bytes, 256));
    view.v = reinterpret_cast<std::byte*>(layout.bytes);
    layout.bytes += static_cast<size_t>(round_up(n_heads * view.v_head_bytes, 256));
    layout.layers.push_back(view);
  }
  return layout;
}

// One row as ops::cache_row_bytes has it, from a tile or a value row on the host.
void get_key(const CacheView& view, const std::byte* head, int64_t position, std::byte* row) {
  const std::byte* tile = head + position / kKeyTile * view.k_tile_bytes;
  const int64_t lane = position % kKeyTile, bytes = view.head_dim * element_bytes(view.type_k);
  const auto piece = [&](int64_t i) { return tile + (i * kKeyTile + lane) * kPieceBytes; };
  if (view.type_k != ops::CacheType::q8_0) {
    for (int64_t at = 0; at < bytes; at += kPieceBytes) {
      std::memcpy(row + at, piece(at / kPieceBytes), static_cast<size_t>(std::min<int64_t>(kPieceBytes, bytes - at)));
    }
    return;
  }
  const std::byte* scales = tile + view.n_pieces * kKeyTile * kPieceBytes;
  for (int64_t block = 0; block < view.head_dim / kQ8Elements; ++block, row += kQ8Bytes) {
    std::memcpy(row, scales + (block * kKeyTile + lane) * 2, 2);
    for (int64_t half = 0; half < 2; ++half) std::memcpy(row + 2 + half * kPieceBytes, piece(2 * block + half), kPieceBytes);
  }
}

void get_value(const CacheView& view, const std::byte* head, int64_t position, std::byte* row) {
  const std::byte* place = head + position * view.v_row_bytes;
  if (view.type_v != ops::CacheType::q8_0) {
    std::memcpy(row, place, static_cast<size_t>(view.v_dim * element_bytes(view.type_v)));
    return;
  }
  for (int64_t block = 0; block < view.v_dim / kQ8Elements; ++block, row += kQ8Bytes) {
    std::memcpy(row, place + view.v_dim + 2 * block, 2);
    std::memcpy(row + 2, place + block * kQ8Elements, kQ8Elements);
  }
}

}  // namespace

size_t KvCache::bytes_needed(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options) {
  return lay_out(layers, options).bytes;
}

KvCache::KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options) : n_ctx_(options.n_ctx) {
  Layout layout = lay_out(layers, options);
  memory_ = DeviceBuffer(layout.bytes, "the KV cache for " + std::to_string(n_ctx_) + " positions");
  if (layout.bytes > 0) check(cudaMemset(memory_.data(), 0, layout.bytes), "clearing the KV cache");
  layers_ = std::move(layout.layers);
  for (CacheView& view : layers_) {
    view.k = memory_.data() + reinterpret_cast<uintptr_t>(view.k);
    view.v = memory_.data() + reinterpret_cast<uintptr_t>(view.v);
  }
}

void KvCache::visit(int64_t sequence, int64_t n_positions, const std::function<void(std::span<const std::byte>)>& sink) const {
  std::vector<std::byte> copy, row;
  for (const CacheView& view : layers_) {
    for (const bool keys : {true, false}) {
      if (!keys && view.values_in_keys) continue;
      row.resize(static_cast<size_t>(ops::cache_row_bytes(keys ? view.type_k : view.type_v, keys ? view.head_dim : view.v_dim)));
      const int64_t head_bytes = keys ? view.k_head_bytes : view.v_head_bytes;
      copy.resize(static_cast<size_t>(view.n_kv_heads * head_bytes));
      check(cudaMemcpy(copy.data(), (keys ? view.k : view.v) + sequence * view.n_kv_heads * head_bytes, copy.size(), cudaMemcpyDeviceToHost),
            "reading the KV cache");
      for (int64_t position = 0; position < n_positions; ++position) {
        for (int64_t head = 0; head < view.n_kv_heads; ++head) {
          const std::byte* from = copy.data() + head * head_bytes;
          keys ? get_key(view, from, position, row.data()) : get_value(view, from, position, row.data());
          sink(row);
        }
      }
    }
  }
}

}  // namespace assay::backend::cuda
