// The device's KV cache: where keys and values lie. What they are when read back is said in ops/attention/attention.h.
// The cache is a pool of pages of 64 positions (pages/page_tables.h); a sequence is a table of them, the same for all
// layers that see all positions; those with a window have a pool and tables of their own (pages/cache_tables.h). Keys
// lie in tiles of 32 positions, 16 bytes of one key beside the same 16 bytes of the next, so that a warp reads 32 keys
// in whole lines; values lie position by position. Memory is taken a chunk of pages at a time, when they are first
// needed. In a chunk a layer's parts of all pages lie side by side, so that a kernel reads one region of memory; where
// layers of a pool differ in size, a page is in one piece.
//
//   chunk:  | layer 0: | page 0: K head 0 tiles 0 1 | K head 1 .. | V head 0 rows 0-63 | V head 1 .. | page 1: ..| layer 1: ..
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/cuda/kernels/limits.h"
#include "backend/cuda/runtime/device_memory.h"
#include "ops/attention/attention.h"
#include "ops/attention/cache_windows.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "pages/cache_tables.h"

namespace assay::backend::cuda {

inline constexpr int kKeyTile = 32;     // positions
inline constexpr int kPieceBytes = 16;  // of a key
inline constexpr int kCachePage = static_cast<int>(pages::kPagePositions);
inline constexpr int kPageTiles = kCachePage / kKeyTile;
inline constexpr int kSegmentPages = static_cast<int>(ops::kAttentionSegment) / kCachePage;

// One layer of all sequences. Page i of a sequence begins where tables[sequence * n_entries + i] says; entries behind
// those in use, and of pages that were given back, mean nothing.
//   Key tile i of a head begins at its page + k + head * k_head_bytes + i % kPageTiles * k_tile_bytes: pieces
//     [n_pieces][32][16 bytes]; q8_0: then f16 scales [head_dim / 32][32].
//   Value row t of a head begins at its page + v + head * v_head_bytes + t % kCachePage * v_row_bytes; q8_0: int8
//     [v_dim], then its f16 scales [v_dim / 32].
struct CacheView {
  ops::CacheType type_k = ops::CacheType::f16, type_v = ops::CacheType::f16;
  int64_t n_kv_heads = 0, head_dim = 0, n_pieces = 0;
  int64_t v_dim = 0;            // elements of a value
  bool values_in_keys = false;  // they are the first of its key: nothing lies at v
  int64_t k_tile_bytes = 0, k_head_bytes = 0, v_row_bytes = 0, v_head_bytes = 0;
  int64_t k = 0, v = 0;                // where the layer begins, from a page's beginning
  std::byte* const* tables = nullptr;  // on the device
  std::byte* const* alone = nullptr;   // the same of a batch's tokens that are alone, by tile: a kernel asks for them
                                       // before it knows the sequence
  int64_t n_entries = 0;               // of a table: whole segments
};

class KvCache {
 public:
  KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options,
          const ops::CacheWindows& windows = {});

  const CacheView& layer(int64_t i) const noexcept { return layers_[static_cast<size_t>(i)]; }
  const pages::CacheTables& tables() const noexcept { return tables_; }
  pages::CacheTables& own_tables() noexcept { return tables_; }  // for who copies pages beside the stream
  size_t bytes() const noexcept;                                 // once all pages have memory
  size_t bytes_taken() const noexcept { return pools_[0].bytes_taken() + pools_[1].bytes_taken(); }
  size_t used_bytes(int64_t n_ahead) const noexcept;  // of pages in use, but for so many
  // Error(out_of_memory) where the device has no room for the pages that have no memory yet.
  void check_room() const;

  // What follows is queued on the stream, behind which kernels see it; nothing that was queued before may still need
  // the pages that it frees. Memory for so many pages more than are in use: Error(out_of_memory), and nothing has
  // changed, where the device has none.
  void reserve(int64_t n_pages, cudaStream_t stream);
  // As PageTables has them, with memory reserved for the pages that they take; copies are made.
  void extend(int64_t sequence, int64_t n_more, cudaStream_t stream);
  void truncate(int64_t sequence, int64_t n_positions) noexcept { tables_.truncate(sequence, n_positions); }
  void fork(int64_t from, int64_t n_positions, int64_t to, cudaStream_t stream);
  void forget(int64_t sequence, int64_t begin, int64_t end) { tables_.forget(sequence, begin, end); }
  void append_page(int64_t sequence, int64_t n_more, bool with_window);
  // Table i of those of tokens that are alone is the sequence's from now on.
  void place(int64_t i, int64_t sequence);
  void send_tables(cudaStream_t stream);  // what has changed of them: before kernels look there

  // A page's image: its parts in one piece, those of layers with a window last; or without these.
  size_t page_bytes() const noexcept { return pools_[0].page_bytes + pools_[1].page_bytes; }
  size_t window_bytes() const noexcept { return pools_[1].page_bytes; }
  bool is_image(size_t bytes) const noexcept { return bytes == page_bytes() || bytes == pools_[0].page_bytes; }
  // To or from an image on the host. Any thread may call.
  void copy_page(std::byte* to, const pages::CachePage& from, cudaStream_t stream) const;
  void copy_page(const pages::CachePage& to, const std::byte* from, cudaStream_t stream) const;
  // Layer by layer K, then V, of the first n_positions positions: position-major, heads ascending within a position,
  // rows as ops::cache_row_bytes has them. Error(bad_request) where some of them were given back.
  void visit(int64_t sequence, int64_t n_positions, const std::function<void(std::span<const std::byte>)>& sink) const;
  // The same of one layer's K or V. Whoever calls has waited for what was queued.
  void visit_rows(int64_t layer, bool keys, int64_t sequence, int64_t n_positions,
                  const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  // Memory of the layers that see all positions, or of those with a window.
  struct Pool {
    size_t page_bytes = 0, part_bytes = 0;  // of a page: all; each of n_parts pieces of the same size
    int64_t n_parts = 1, n_chunk_pages = 1;
    int64_t n_with_memory = 0;          // the first pages of the pool
    std::vector<std::byte*> addresses;  // per page; null without memory
    std::vector<DeviceBuffer> memory;
    size_t pitch() const noexcept { return static_cast<size_t>(n_chunk_pages) * part_bytes; }
    size_t bytes_taken() const noexcept { return memory.size() * static_cast<size_t>(n_chunk_pages) * page_bytes; }
    std::byte* page(int32_t i) const noexcept { return addresses[static_cast<size_t>(i)]; }
  };
  const pages::PageTables& tables_of(size_t pool) const noexcept {
    return pool == 0 ? tables_.all() : tables_.window();
  }
  int64_t n_to_take(size_t pool) const noexcept;  // pages, for which there is no memory yet
  void place_layers(size_t pool);
  void take_chunk(size_t pool, cudaStream_t stream);
  void copy_own(const assay::pages::CacheCopies& copies, cudaStream_t stream) const;
  // Of the tables of a pool: the sequences', then those of tokens that are alone.
  struct EntryRange {
    int64_t begin = 0, end = 0;
  };
  int64_t row_of(size_t pool, int64_t row) const noexcept {
    return static_cast<int64_t>(pool) * (n_sequences_ + static_cast<int64_t>(placed_.size())) + row;
  }
  std::byte** entries_of(int64_t row) const noexcept { return tables_host_.as<std::byte*>() + row * n_entries_; }
  EntryRange range_of(int64_t row, int64_t begin, int64_t end) const noexcept {
    return {row * n_entries_ + begin, row * n_entries_ + end};
  }
  void set_tables(int64_t sequence, int64_t begin, int64_t end);
  void copy_row(size_t pool, int64_t sequence, int64_t begin, int64_t end, int64_t i_place);

  int64_t n_sequences_ = 0, n_entries_ = 0;
  std::vector<CacheView> layers_;
  std::vector<uint8_t> has_window_;  // per layer
  std::array<Pool, 2> pools_;
  pages::CacheTables tables_;
  size_t n_pools_;
  PinnedBuffer tables_host_;
  DeviceBuffer tables_device_;
  std::vector<int64_t> placed_;                     // of tokens that are alone: whose tables theirs are
  std::array<std::vector<EntryRange>, 4> changed_;  // of either kind, of either pool
};

// Tokens of a batch whose segments of attention are worked on side by side.
// As many as kSplitTokensMax are, whatever their sequences.
int64_t alone_max(const ops::ExecutorOptions& options) noexcept;

// Writes the keys and values of the batch's tokens into the cache. k, v f32 [n_tokens, n_kv_heads * head_dim or v_dim];
// v null where values lie in keys.
void kv_store(const CacheView& cache, const float* k, const float* v, const int32_t* positions,
              const int32_t* sequences, int64_t n_tokens, cudaStream_t stream);

}  // namespace assay::backend::cuda
