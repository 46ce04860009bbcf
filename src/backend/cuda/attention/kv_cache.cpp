// Layout of the device's KV cache, and its bits in the contract's order.
#include "backend/cuda/attention/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "assay/error.h"
#include "base/round_up.h"

namespace assay::backend::cuda {
namespace {

constexpr int64_t kQ8Elements = 32;
constexpr int64_t kQ8Bytes = 34;
constexpr int64_t kPartAlignment = 256;
constexpr size_t kChunkBytes = 256 << 20;  // of memory that is taken at a time, at least,
constexpr size_t kChunksMax = 32;          // but not in more parts
constexpr int64_t kNobody = -1;
constexpr int64_t kEntriesPerCopy = 4096;  // that travel about as long as a copy takes to start

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

CacheView view_of(const ops::CacheLayer& layer, const ops::ExecutorOptions& options) {
  CacheView view;
  view.type_k = options.cache_k;
  view.type_v = options.cache_v;
  view.n_kv_heads = layer.n_kv_heads;
  view.head_dim = layer.head_dim;
  view.v_dim = layer.v_dim();
  view.values_in_keys = layer.values_in_keys;
  const int64_t stored = layer.stored_v_dim();
  view.n_pieces = base::round_up(layer.head_dim * element_bytes(view.type_k), kPieceBytes) / kPieceBytes;
  view.k_tile_bytes = view.n_pieces * kKeyTile * kPieceBytes;
  view.v_row_bytes = stored * element_bytes(view.type_v);
  if (view.type_k == ops::CacheType::q8_0) view.k_tile_bytes += layer.head_dim / kQ8Elements * kKeyTile * 2;
  if (view.type_v == ops::CacheType::q8_0) view.v_row_bytes += stored / kQ8Elements * 2;
  view.v_row_bytes = base::round_up(view.v_row_bytes, kPieceBytes);
  view.k_head_bytes = kPageTiles * view.k_tile_bytes;
  view.v_head_bytes = kCachePage * view.v_row_bytes;
  return view;
}

// One row as ops::cache_row_bytes has it, of a position of the page in which the head's keys or values begin at `head`,
// on the host.
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
    for (int64_t half = 0; half < 2; ++half)
      std::memcpy(row + 2 + half * kPieceBytes, piece(2 * block + half), kPieceBytes);
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

int64_t alone_max(const ops::ExecutorOptions& options) noexcept {
  return std::min(options.n_batch_max,
                  std::max<int64_t>(kSplitTokensMax, options.n_at_once > 0 ? options.n_at_once : options.n_sequences));
}

KvCache::KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options,
                 const ops::CacheWindows& windows)
    : n_sequences_(options.n_sequences), n_entries_(base::round_up(pages::pages_of(options.n_ctx), kSegmentPages)),
      tables_(options.n_sequences, options.n_ctx, ops::cache_pages(options, kCachePage), windows.seen(),
              windows.n_pages(options, kCachePage)),
      n_pools_(tables_.has_windows() ? 2 : 1) {
  for (const ops::CacheLayer& layer : layers) {
    check_type(options.cache_k, layer.head_dim, "K", layers_.size());
    check_type(options.cache_v, layer.stored_v_dim(), "V", layers_.size());
    has_window_.push_back(windows.has_window(layers_.size()) ? 1 : 0);
    layers_.push_back(view_of(layer, options));
  }
  for (size_t pool = 0; pool < n_pools_; ++pool) place_layers(pool);
  placed_.assign(static_cast<size_t>(alone_max(options)), kNobody);
  const int64_t n_rows = row_of(n_pools_, 0);
  const size_t bytes = static_cast<size_t>(n_rows * n_entries_) * sizeof(std::byte*);
  tables_host_ = PinnedBuffer(bytes, "the tables of the KV cache's pages");
  tables_device_ = DeviceBuffer(bytes, "the tables of the KV cache's pages");
  std::memset(tables_host_.data(), 0, bytes);
  for (std::vector<EntryRange>& changed : changed_)
    changed.reserve(static_cast<size_t>(2 * options.n_sequences) + placed_.size());
  check(cudaMemset(tables_device_.data(), 0, bytes), "clearing the tables of pages");
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i].tables = tables_device_.as<std::byte*>() + row_of(has_window_[i], 0) * n_entries_;
    layers_[i].alone = layers_[i].tables + options.n_sequences * n_entries_;
    layers_[i].n_entries = n_entries_;
  }
}

// In a page of their pool; where they are alike, in a chunk of it.
void KvCache::place_layers(size_t i_pool) {
  Pool& pool = pools_[i_pool];
  std::vector<CacheView*> views;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (has_window_[i] == i_pool) views.push_back(&layers_[i]);
  }
  const auto take = [&pool](int64_t bytes) {
    const size_t at = pool.page_bytes;
    pool.page_bytes += static_cast<size_t>(base::round_up(bytes, kPartAlignment));
    return static_cast<int64_t>(at);
  };
  for (CacheView* view : views) {
    view->k = take(view->n_kv_heads * view->k_head_bytes);
    view->v = take(view->n_kv_heads * view->v_head_bytes);
  }
  pool.part_bytes = pool.page_bytes;
  const int64_t n_pages = tables_of(i_pool).pool().n_pages();
  pool.addresses.assign(static_cast<size_t>(n_pages), nullptr);
  const size_t all = static_cast<size_t>(n_pages) * pool.page_bytes,
               n_chunks = std::clamp<size_t>(all / kChunkBytes, 1, kChunksMax);
  pool.n_chunk_pages = (n_pages + static_cast<int64_t>(n_chunks) - 1) / static_cast<int64_t>(n_chunks);
  const auto is_alike = [&](const CacheView* view) {
    const CacheView& first = *views.front();
    return view->k_head_bytes * view->n_kv_heads == first.k_head_bytes * first.n_kv_heads &&
           view->v - view->k == first.v - first.k &&
           view->v_head_bytes * view->n_kv_heads == first.v_head_bytes * first.n_kv_heads;
  };
  if (!std::all_of(views.begin(), views.end(), is_alike)) return;
  pool.n_parts = std::max<int64_t>(1, static_cast<int64_t>(views.size()));
  pool.part_bytes = pool.page_bytes / static_cast<size_t>(pool.n_parts);
  for (size_t i = 0; i < views.size(); ++i) {
    const auto at = static_cast<int64_t>(i * pool.pitch());
    views[i]->v += at - views[i]->k;
    views[i]->k = at;
  }
}

size_t KvCache::bytes() const noexcept {
  size_t bytes = tables_device_.size();
  for (size_t i = 0; i < n_pools_; ++i)
    bytes += static_cast<size_t>(tables_of(i).pool().n_pages()) * pools_[i].page_bytes;
  return bytes;
}

size_t KvCache::used_bytes(int64_t n_ahead) const noexcept {
  size_t bytes = 0;
  for (size_t i = 0; i < n_pools_; ++i) {
    const pages::PagePool& pool = tables_of(i).pool();
    bytes += static_cast<size_t>(pool.n_pages() - pool.n_free() - n_ahead) * pools_[i].page_bytes;
  }
  return bytes;
}

int64_t KvCache::n_to_take(size_t i_pool) const noexcept {
  return base::round_up(tables_of(i_pool).pool().n_pages() - pools_[i_pool].n_with_memory,
                        pools_[i_pool].n_chunk_pages);
}

void KvCache::check_room() const {
  size_t free_bytes = 0, total = 0, needed = 0;
  check(cudaMemGetInfo(&free_bytes, &total), "asking for the GPU's memory");
  for (size_t i = 0; i < n_pools_; ++i) needed += static_cast<size_t>(n_to_take(i)) * pools_[i].page_bytes;
  if (needed <= free_bytes) return;
  throw Error(Errc::out_of_memory,
              "the KV cache for " + std::to_string(n_to_take(0) * kCachePage) + " positions needs " +
                  shown_bytes(needed) + " of the GPU's memory, " + shown_bytes(free_bytes) + " of " +
                  shown_bytes(total) +
                  " are free; a smaller context (-c), fewer sequences (-np), fewer positions of all of them "
                  "(--max-total-tokens) or layers on the GPU (-ngl) need less, --backend cpu needs none");
}

void KvCache::reserve(int64_t n_pages, cudaStream_t stream) {
  for (size_t i = 0; i < n_pools_; ++i) {
    const pages::PagePool& pool = tables_of(i).pool();
    const int64_t needed = std::min(pool.n_pages(), pool.n_pages() - pool.n_ready() +
                                                        n_pages);  // a pool gives the first pages that are ready first
    while (pools_[i].n_with_memory < needed) take_chunk(i, stream);
  }
}

void KvCache::take_chunk(size_t i_pool, cudaStream_t stream) {
  Pool& pool = pools_[i_pool];
  pool.memory.reserve(pool.memory.size() + 1);
  const int64_t n_pages = std::min(pool.n_chunk_pages, tables_of(i_pool).pool().n_pages() - pool.n_with_memory);
  const size_t bytes = static_cast<size_t>(pool.n_chunk_pages) * pool.page_bytes;
  DeviceBuffer memory(bytes, std::to_string(n_pages * kCachePage) + " positions more of the KV cache");
  // What a kernel reads beside the keys that it wants is the same in every run.
  if (bytes > 0) check(cudaMemsetAsync(memory.data(), 0, bytes, stream), "clearing pages of the KV cache");
  for (int64_t i = 0; i < n_pages; ++i) {
    pool.addresses[static_cast<size_t>(pool.n_with_memory + i)] =
        memory.data() + static_cast<size_t>(i) * pool.part_bytes;
  }
  pool.memory.push_back(std::move(memory));
  pool.n_with_memory += n_pages;
}

void KvCache::copy_page(std::byte* to, const pages::CachePage& from, cudaStream_t stream) const {
  for (size_t i = 0; i < n_pools_; ++i) {
    const Pool& pool = pools_[i];
    const int32_t page = i == 0 ? from.all : from.window;
    if (page == pages::PageTables::kNoPage || pool.page_bytes == 0) continue;
    check(cudaMemcpy2DAsync(to, pool.part_bytes, pool.page(page), pool.pitch(), pool.part_bytes,
                            static_cast<size_t>(pool.n_parts), cudaMemcpyDeviceToHost, stream),
          "reading a page of the KV cache");
    to += pool.page_bytes;
  }
}
void KvCache::copy_page(const pages::CachePage& to, const std::byte* from, cudaStream_t stream) const {
  for (size_t i = 0; i < n_pools_; ++i) {
    const Pool& pool = pools_[i];
    const int32_t page = i == 0 ? to.all : to.window;
    if (page == pages::PageTables::kNoPage || pool.page_bytes == 0) continue;
    check(cudaMemcpy2DAsync(pool.page(page), pool.pitch(), from, pool.part_bytes, pool.part_bytes,
                            static_cast<size_t>(pool.n_parts), cudaMemcpyHostToDevice, stream),
          "writing a page of the KV cache");
    from += pool.page_bytes;
  }
}
void KvCache::copy_own(const assay::pages::CacheCopies& copies, cudaStream_t stream) const {
  for (size_t i = 0; i < n_pools_; ++i) {
    const Pool& pool = pools_[i];
    const auto& copy = i == 0 ? copies.all : copies.window;
    if (!copy || pool.page_bytes == 0) continue;
    check(cudaMemcpy2DAsync(pool.page(copy->to), pool.pitch(), pool.page(copy->from), pool.pitch(), pool.part_bytes,
                            static_cast<size_t>(pool.n_parts), cudaMemcpyDeviceToDevice, stream),
          "copying a page of the KV cache");
  }
}

// Entries of pages that were given back stay what they are: nobody looks there.
void KvCache::set_tables(int64_t sequence, int64_t begin, int64_t end) {
  if (begin >= end || layers_.empty()) return;
  for (size_t i = 0; i < n_pools_; ++i) {
    std::byte** const entries = entries_of(row_of(i, sequence));
    const int32_t* const table = tables_of(i).table(sequence);
    for (int64_t page = begin; page < end; ++page) {
      if (table[page] != pages::PageTables::kNoPage) entries[page] = pools_[i].page(table[page]);
    }
    changed_[2 * i].push_back(range_of(row_of(i, sequence), begin, end));
    for (size_t place = 0; place < placed_.size(); ++place) {
      if (placed_[place] == sequence) copy_row(i, sequence, begin, end, static_cast<int64_t>(place));
    }
  }
}

void KvCache::copy_row(size_t pool, int64_t sequence, int64_t begin, int64_t end, int64_t i_place) {
  std::byte** const from = entries_of(row_of(pool, sequence));
  const int64_t to = row_of(pool, n_sequences_ + i_place);
  std::copy(from + begin, from + end, entries_of(to) + begin);
  changed_[2 * pool + 1].push_back(range_of(to, begin, end));
}

void KvCache::place(int64_t i, int64_t sequence) {
  int64_t& placed = placed_[static_cast<size_t>(i)];
  if (placed == sequence || layers_.empty()) return;
  placed = sequence;
  const int64_t n_pages = pages::pages_of(tables_.n_positions(sequence));
  for (size_t pool = 0; pool < n_pools_ && n_pages > 0; ++pool) copy_row(pool, sequence, 0, n_pages, i);
}

void KvCache::send_tables(cudaStream_t stream) {
  const auto send = [&](EntryRange range) {
    const size_t at = static_cast<size_t>(range.begin) * sizeof(std::byte*);
    check(cudaMemcpyAsync(tables_device_.data() + at, tables_host_.data() + at,
                          static_cast<size_t>(range.end - range.begin) * sizeof(std::byte*), cudaMemcpyHostToDevice,
                          stream),
          "sending tables of pages");
  };
  for (std::vector<EntryRange>& changed : changed_) {
    if (changed.empty()) continue;
    EntryRange all = changed.front();
    for (const EntryRange& range : changed) all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
    if (all.end - all.begin <= static_cast<int64_t>(changed.size()) * kEntriesPerCopy) {
      send(all);
    } else {
      std::for_each(changed.begin(), changed.end(), send);
    }
    changed.clear();
  }
}

void KvCache::extend(int64_t sequence, int64_t n_more, cudaStream_t stream) {
  const int64_t n_before = tables_.n_positions(sequence);
  const pages::CacheCopies copies = tables_.extend(sequence, n_more);
  const int64_t begin = copies.all || copies.window ? n_before / kCachePage : pages::pages_of(n_before);
  copy_own(copies, stream);
  set_tables(sequence, begin, pages::pages_of(tables_.n_positions(sequence)));
}

void KvCache::fork(int64_t from, int64_t n_positions, int64_t to, cudaStream_t stream) {
  copy_own(tables_.fork(from, n_positions, to), stream);
  set_tables(to, 0, pages::pages_of(n_positions));
}

void KvCache::append_page(int64_t sequence, int64_t n_more, bool with_window) {
  const int64_t i_page = tables_.n_positions(sequence) / kCachePage;
  tables_.append_page(sequence, n_more, with_window);
  set_tables(sequence, i_page, i_page + 1);
}

void KvCache::visit_rows(int64_t layer, bool keys, int64_t sequence, int64_t n_positions,
                         const std::function<void(std::span<const std::byte>)>& sink) const {
  const CacheView& view = layers_[static_cast<size_t>(layer)];
  const int64_t n_pages = pages::pages_of(n_positions), head_bytes = keys ? view.k_head_bytes : view.v_head_bytes,
                in_page = view.n_kv_heads * head_bytes;
  std::vector<std::byte> copy(static_cast<size_t>(n_pages * in_page));
  std::vector<std::byte> row(
      static_cast<size_t>(ops::cache_row_bytes(keys ? view.type_k : view.type_v, keys ? view.head_dim : view.v_dim)));
  const size_t pool = has_window_[static_cast<size_t>(layer)];
  for (int64_t i = 0; i < n_pages; ++i) {
    const std::byte* page = pools_[pool].page(tables_of(pool).table(sequence)[i]);
    check(cudaMemcpy(copy.data() + i * in_page, page + (keys ? view.k : view.v), static_cast<size_t>(in_page),
                     cudaMemcpyDeviceToHost),
          "reading the KV cache");
  }
  for (int64_t position = 0; position < n_positions; ++position) {
    for (int64_t head = 0; head < view.n_kv_heads; ++head) {
      const std::byte* from = copy.data() + position / kCachePage * in_page + head * head_bytes;
      keys ? get_key(view, from, position % kCachePage, row.data())
           : get_value(view, from, position % kCachePage, row.data());
      sink(row);
    }
  }
}

void KvCache::visit(int64_t sequence, int64_t n_positions,
                    const std::function<void(std::span<const std::byte>)>& sink) const {
  tables_.check_whole(sequence, n_positions);
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    for (const bool keys : {true, false}) {
      if (keys || !layers_[layer].values_in_keys)
        visit_rows(static_cast<int64_t>(layer), keys, sequence, n_positions, sink);
    }
  }
}

}  // namespace assay::backend::cuda
