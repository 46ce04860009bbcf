// Layout of the CPU's KV cache, and the plain moves in and out of it.
#include "backend/cpu/runtime/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "assay/error.h"
#include "base/round_up.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kQ8Elements = 32, kQ8Bytes = 34;

// Bytes of one element; of q8_0 without its scale.
int64_t element_bytes(ops::CacheType type) noexcept {
  return type == ops::CacheType::f32 ? 4 : type == ops::CacheType::f16 ? 2 : 1;
}

void check_type(ops::CacheType type, int64_t head_dim, const char* which, size_t layer) {
  if (type == ops::CacheType::q8_0 && head_dim % kQ8Elements != 0) {
    throw Error(Errc::unsupported, std::string("KV cache type q8_0 for ") + which +
                                       " needs a head dimension that is a multiple of 32; layer " +
                                       std::to_string(layer) + " has " + std::to_string(head_dim));
  }
}

// n elements of one lane of a key tile to a lane of another one.
template <class Element>
void copy_lane(const std::byte* from, std::byte* to, int64_t n) noexcept {
  const auto* source = reinterpret_cast<const Element*>(from);
  auto* place = reinterpret_cast<Element*>(to);
  for (int64_t j = 0; j < n; ++j) place[j * kKeyTile] = source[j * kKeyTile];
}

void copy_key(const CacheHead& head, const std::byte* from, int64_t lane, std::byte* to, int64_t to_lane) noexcept {
  if (head.type_k == ops::CacheType::f32) return copy_lane<uint32_t>(from + lane * 4, to + to_lane * 4, head.head_dim);
  if (head.type_k == ops::CacheType::f16) return copy_lane<uint16_t>(from + lane * 2, to + to_lane * 2, head.head_dim);
  const int64_t n_blocks = head.head_dim / kQ8Elements, integers = n_blocks * kKeyTile * 2;
  copy_lane<uint16_t>(from + lane * 2, to + to_lane * 2, n_blocks);
  copy_lane<uint8_t>(from + integers + lane, to + integers + to_lane, head.head_dim);
}

// Rows of `bytes` bytes, `n` of them: from or to columns that lie `stride` bytes apart.
void spread(const std::byte* row, int64_t n, int64_t bytes, std::byte* column, int64_t stride) noexcept {
  for (int64_t j = 0; j < n; ++j) std::memcpy(column + j * stride, row + j * bytes, static_cast<size_t>(bytes));
}
void collect(const std::byte* column, int64_t stride, int64_t n, int64_t bytes, std::byte* row) noexcept {
  for (int64_t j = 0; j < n; ++j) std::memcpy(row + j * bytes, column + j * stride, static_cast<size_t>(bytes));
}

}  // namespace

void put_key(const CacheHead& head, int64_t position, const std::byte* row) noexcept {
  std::byte* tile = key_tile(head, position / kKeyTile);
  const int64_t lane = position % kKeyTile;
  const int64_t bytes = element_bytes(head.type_k);
  if (head.type_k != ops::CacheType::q8_0)
    return spread(row, head.head_dim, bytes, tile + lane * bytes, kKeyTile * bytes);
  const int64_t n_blocks = head.head_dim / kQ8Elements;
  std::byte* integers = tile + n_blocks * kKeyTile * 2;
  for (int64_t block = 0; block < n_blocks; ++block) {
    std::memcpy(tile + (block * kKeyTile + lane) * 2, row + block * kQ8Bytes, 2);
    spread(row + block * kQ8Bytes + 2, kQ8Elements, 1, integers + block * kQ8Elements * kKeyTile + lane, kKeyTile);
  }
}

void get_key(const CacheHead& head, int64_t position, std::byte* row) noexcept {
  const std::byte* tile = key_tile(head, position / kKeyTile);
  const int64_t lane = position % kKeyTile;
  const int64_t bytes = element_bytes(head.type_k);
  if (head.type_k != ops::CacheType::q8_0)
    return collect(tile + lane * bytes, kKeyTile * bytes, head.head_dim, bytes, row);
  const int64_t n_blocks = head.head_dim / kQ8Elements;
  const std::byte* integers = tile + n_blocks * kKeyTile * 2;
  for (int64_t block = 0; block < n_blocks; ++block) {
    std::memcpy(row + block * kQ8Bytes, tile + (block * kKeyTile + lane) * 2, 2);
    collect(integers + block * kQ8Elements * kKeyTile + lane, kKeyTile, kQ8Elements, 1, row + block * kQ8Bytes + 2);
  }
}

void put_value(const CacheHead& head, int64_t position, const std::byte* row) noexcept {
  std::byte* place = value_row(head, position);
  if (head.type_v != ops::CacheType::q8_0) {
    std::memcpy(place, row, static_cast<size_t>(head.v_dim * element_bytes(head.type_v)));
    return;
  }
  const int64_t n_blocks = head.v_dim / kQ8Elements;
  for (int64_t block = 0; block < n_blocks; ++block) {
    std::memcpy(value_scales(head, position) + block * 2, row + block * kQ8Bytes, 2);
    std::memcpy(place + block * kQ8Elements, row + block * kQ8Bytes + 2, kQ8Elements);
  }
}

void get_value(const CacheHead& head, int64_t position, std::byte* row) noexcept {
  const std::byte* place = value_row(head, position);
  if (head.type_v != ops::CacheType::q8_0) {
    std::memcpy(row, place, static_cast<size_t>(head.v_dim * element_bytes(head.type_v)));
    return;
  }
  const int64_t n_blocks = head.v_dim / kQ8Elements;
  for (int64_t block = 0; block < n_blocks; ++block) {
    std::memcpy(row + block * kQ8Bytes, value_scales(head, position) + block * 2, 2);
    std::memcpy(row + block * kQ8Bytes + 2, place + block * kQ8Elements, kQ8Elements);
  }
}

void copy_position(const CacheHead& from, int64_t position, const CacheHead& to, int64_t to_position) noexcept {
  copy_key(from, key_tile(from, position / kKeyTile), position % kKeyTile, key_tile(to, to_position / kKeyTile),
           to_position % kKeyTile);
  if (from.values_in_keys()) return;
  std::memcpy(value_row(to, to_position), value_row(from, position), static_cast<size_t>(from.v_row_bytes));
  if (from.type_v != ops::CacheType::q8_0) return;
  std::memcpy(value_scales(to, to_position), value_scales(from, position),
              static_cast<size_t>(from.v_dim / kQ8Elements * 2));
}

KvCache::KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options,
                 ops::CacheWindows windows)
    : type_k_(options.cache_k), type_v_(options.cache_v), windows_(std::move(windows)),
      tables_(options.n_sequences, options.n_ctx, ops::cache_pages(options, kCachePage), windows_.seen(),
              windows_.n_pages(options, kCachePage)) {
  size_t bytes = 0;
  const auto take = [&bytes](size_t part) {
    const size_t at = bytes;
    bytes += base::round_up(part, 64);
    return at;
  };
  for (const ops::CacheLayer& layer : layers) {
    check_type(type_k_, layer.head_dim, "K", layers_.size());
    if (!layer.values_in_keys) check_type(type_v_, layer.v_dim(), "V", layers_.size());
    Layer placed;
    placed.n_kv_heads = layer.n_kv_heads;
    placed.has_window = windows_.has_window(layers_.size());
    const auto n_pages = static_cast<size_t>((placed.has_window ? tables_.window() : tables_.all()).pool().n_pages());
    CacheHead& head = placed.first;
    head.type_k = type_k_;
    head.type_v = type_v_;
    head.head_dim = layer.head_dim;
    head.v_dim = layer.v_dim();
    head.v_cols = base::round_up(layer.v_dim(), 16);
    head.k_tile_bytes = kKeyTile * layer.head_dim * element_bytes(type_k_);
    if (type_k_ == ops::CacheType::q8_0) head.k_tile_bytes += kKeyTile * layer.head_dim / kQ8Elements * 2;
    head.v_row_bytes = layer.values_in_keys ? 0 : head.v_cols * element_bytes(type_v_);
    placed.k_head_bytes = static_cast<size_t>(kPageTiles * head.k_tile_bytes);
    placed.v_head_bytes = static_cast<size_t>(kCachePage * head.v_row_bytes);
    if (type_v_ == ops::CacheType::q8_0)
      placed.v_scales_head_bytes = static_cast<size_t>(kCachePage * layer.stored_v_dim() / kQ8Elements * 2);
    head.k_page_bytes = layer.n_kv_heads * static_cast<int64_t>(placed.k_head_bytes);
    head.v_page_bytes = layer.n_kv_heads * static_cast<int64_t>(placed.v_head_bytes);
    head.v_scales_page_bytes = layer.n_kv_heads * static_cast<int64_t>(placed.v_scales_head_bytes);
    placed.k = take(n_pages * static_cast<size_t>(head.k_page_bytes));
    placed.v = take(n_pages * static_cast<size_t>(head.v_page_bytes));
    placed.v_scales = take(n_pages * static_cast<size_t>(head.v_scales_page_bytes));
    const auto page_bytes = static_cast<size_t>(head.k_page_bytes + head.v_page_bytes + head.v_scales_page_bytes);
    page_bytes_ += page_bytes;
    if (placed.has_window) window_bytes_ += page_bytes;
    layers_.push_back(placed);
  }
  memory_ = base::AlignedBuffer(
      bytes, "the KV cache for " + std::to_string(tables_.all().pool().n_pages() * kCachePage) + " positions");
}

CacheHead KvCache::head(int64_t layer, int64_t sequence, int64_t kv_head) const noexcept {
  const Layer& placed = layers_[static_cast<size_t>(layer)];
  const auto i_head = static_cast<size_t>(kv_head);
  CacheHead head = placed.first;
  head.pages = (placed.has_window ? tables_.window() : tables_.all()).table(sequence);
  head.k = memory_.data() + placed.k + i_head * placed.k_head_bytes;
  head.v = memory_.data() + placed.v + i_head * placed.v_head_bytes;
  head.v_scales = memory_.data() + placed.v_scales + i_head * placed.v_scales_head_bytes;
  return head;
}

template <class Visit>
void KvCache::for_pieces(bool of_windows, int32_t page, const Visit& visit) const noexcept {
  const auto i_page = static_cast<size_t>(page);
  for (const Layer& layer : layers_) {
    if (layer.has_window != of_windows) continue;
    const CacheHead& head = layer.first;
    for (const auto& [begin, page_bytes] :
         {std::pair(layer.k, head.k_page_bytes), std::pair(layer.v, head.v_page_bytes),
          std::pair(layer.v_scales, head.v_scales_page_bytes)}) {
      const auto bytes = static_cast<size_t>(page_bytes);
      if (bytes > 0) visit(memory_.data() + begin + i_page * bytes, bytes);
    }
  }
}

template <class Visit>
void KvCache::for_image(int64_t sequence, int64_t i_page, size_t bytes, const Visit& visit) const noexcept {
  const pages::CachePage page = tables_.page(sequence, i_page);
  for_pieces(false, page.all, visit);
  if (bytes == page_bytes_ && window_bytes_ > 0) for_pieces(true, page.window, visit);
}

size_t KvCache::used_bytes() const noexcept {
  const auto in_use = [](const pages::PageTables& tables) {
    return static_cast<size_t>(tables.pool().n_pages() - tables.pool().n_free());
  };
  return in_use(tables_.all()) * (page_bytes_ - window_bytes_) + in_use(tables_.window()) * window_bytes_;
}

void KvCache::copy_page(bool of_windows, const std::optional<pages::PageCopy>& copy) noexcept {
  if (!copy) return;
  for (const Layer& layer : layers_) {
    if (layer.has_window != of_windows) continue;
    const CacheHead& head = layer.first;
    const auto move = [&](size_t begin, int64_t page_bytes) {
      if (page_bytes == 0) return;
      const auto bytes = static_cast<size_t>(page_bytes);
      std::memcpy(memory_.data() + begin + static_cast<size_t>(copy->to) * bytes,
                  memory_.data() + begin + static_cast<size_t>(copy->from) * bytes, bytes);
    };
    move(layer.k, head.k_page_bytes);
    move(layer.v, head.v_page_bytes);
    move(layer.v_scales, head.v_scales_page_bytes);
  }
}

void KvCache::read_page(int64_t sequence, int64_t i_page, std::span<std::byte> image) const noexcept {
  std::byte* to = image.data();
  for_image(sequence, i_page, image.size(), [&](const std::byte* piece, size_t bytes) {
    std::memcpy(to, piece, bytes);
    to += bytes;
  });
}

void KvCache::append_page(int64_t sequence, int64_t n_more, std::span<const std::byte> image) noexcept {
  const int64_t i_page = tables_.n_positions(sequence) / kCachePage;
  tables_.append_page(sequence, n_more, image.size() == page_bytes_);
  const std::byte* from = image.data();
  for_image(sequence, i_page, image.size(), [&](std::byte* piece, size_t bytes) {
    std::memcpy(piece, from, bytes);
    from += bytes;
  });
}

void KvCache::visit(int64_t sequence, int64_t n_positions,
                    const std::function<void(std::span<const std::byte>)>& sink) const {
  tables_.check_whole(sequence, n_positions);
  std::vector<std::byte> row;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const bool keys : {true, false}) {
      const CacheHead& first = layers_[layer].first;
      if (!keys && first.values_in_keys()) continue;
      row.resize(static_cast<size_t>(keys ? ops::cache_row_bytes(type_k_, first.head_dim)
                                          : ops::cache_row_bytes(type_v_, first.v_dim)));
      for (int64_t position = 0; position < n_positions; ++position) {
        for (int64_t kv_head = 0; kv_head < layers_[layer].n_kv_heads; ++kv_head) {
          const CacheHead view = head(static_cast<int64_t>(layer), sequence, kv_head);
          keys ? get_key(view, position, row.data()) : get_value(view, position, row.data());
          sink(row);
        }
      }
    }
  }
}

}  // namespace assay::backend::cpu
