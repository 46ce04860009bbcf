// The CPU's KV cache: where keys and values lie. What they are when read back is said in ops/attention/attention.h.
// The cache is a pool of pages of 64 positions (pages/page_tables.h); a sequence is a table of them, the same for all
// layers that see all positions; layers with a window have a pool and tables of their own, of as many pages, so that
// what lies behind the window can be given back. In a page keys are stored in tiles of 32 positions, element-major, so
// that a kernel finds one element of 32 keys side by side; values are stored position by position. A layer's pages lie
// side by side, and memory is taken where it is touched: a pool gives the lowest free page.
//
//   layer:  | page 0                      | page 1                      | ...
//   K       | head 0 tiles 0 1 | head 1 ..| head 0 tiles 0 1 | head 1 ..|
//   V       | head 0 rows 0-63 | head 1 ..| head 0 rows 0-63 | head 1 ..|
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "ops/attention/attention.h"
#include "ops/attention/cache_windows.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "pages/cache_tables.h"

namespace assay::backend::cpu {

inline constexpr int64_t kKeyTile = 32;
inline constexpr int64_t kCachePage = pages::kPagePositions;
inline constexpr int64_t kPageTiles = kCachePage / kKeyTile;

// One KV head of one layer and sequence; a view into the KvCache.
//   Key tile i (positions 32 i .. 32 i + 31) begins at key_tile(head, i): f32 or f16 [head_dim][32]; q8_0: f16 scales
//   [head_dim / 32][32], then int8 [head_dim][32].
//   Value row t begins at value_row(head, t): f32 or f16 [v_cols]; q8_0: int8 [v_cols], its f16 scales [v_dim / 32] at
//     value_scales(head, t).
//   The rows of a page follow one another.
//   v_cols is v_dim rounded up to 16; what lies beyond v_dim stays zero. Where values lie in the keys v_row_bytes is 0
//     and v leads nowhere.
struct CacheHead {
  ops::CacheType type_k = ops::CacheType::f16, type_v = ops::CacheType::f16;
  int64_t head_dim = 0, v_dim = 0, v_cols = 0;
  int64_t k_tile_bytes = 0, v_row_bytes = 0;
  int64_t k_page_bytes = 0, v_page_bytes = 0, v_scales_page_bytes = 0;  // from a page of the pool to the next
  const int32_t* pages =
      nullptr;             // of the sequence: which pages of the pool; may be read kTableAhead beyond those in use
  std::byte* k = nullptr;  // of the pool's page 0
  std::byte* v = nullptr;
  std::byte* v_scales = nullptr;
  bool values_in_keys() const noexcept { return v_row_bytes == 0; }
};

static inline std::byte* key_tile(const CacheHead& head, int64_t tile) noexcept {
  return head.k + head.pages[tile / kPageTiles] * head.k_page_bytes + tile % kPageTiles * head.k_tile_bytes;
}
static inline std::byte* value_row(const CacheHead& head, int64_t position) noexcept {
  return head.v + head.pages[position / kCachePage] * head.v_page_bytes + position % kCachePage * head.v_row_bytes;
}
static inline std::byte* value_scales(const CacheHead& head, int64_t position) noexcept {
  return head.v_scales + head.pages[position / kCachePage] * head.v_scales_page_bytes +
         position % kCachePage * (head.v_dim / 32) * 2;
}

// Moves one position between its place in the cache and its natural order (cache_row_bytes of
// ops/attention/attention.h).
void put_key(const CacheHead& head, int64_t position, const std::byte* row) noexcept;
void get_key(const CacheHead& head, int64_t position, std::byte* row) noexcept;
void put_value(const CacheHead& head, int64_t position, const std::byte* row) noexcept;
void get_value(const CacheHead& head, int64_t position, std::byte* row) noexcept;

// One position of a head to a place of another one of the same types and widths.
void copy_position(const CacheHead& from, int64_t position, const CacheHead& to, int64_t to_position) noexcept;

class KvCache {
 public:
  KvCache(std::span<const ops::CacheLayer> layers, const ops::ExecutorOptions& options, ops::CacheWindows windows = {});

  CacheHead head(int64_t layer, int64_t sequence, int64_t kv_head) const noexcept;
  size_t bytes() const noexcept { return memory_.size(); }

  const pages::CacheTables& tables() const noexcept { return tables_; }
  size_t used_bytes() const noexcept;
  // As the tables have them, copies made.
  void extend(int64_t sequence, int64_t n_more) noexcept { copy_pages(tables_.extend(sequence, n_more)); }
  void truncate(int64_t sequence, int64_t n_positions) noexcept { tables_.truncate(sequence, n_positions); }
  void fork(int64_t from, int64_t n_positions, int64_t to) noexcept { copy_pages(tables_.fork(from, n_positions, to)); }
  void forget(int64_t sequence, int64_t begin, int64_t end) { tables_.forget(sequence, begin, end); }

  // A page as it lies in memory, layer by layer, in one piece, those with a window last; or without these.
  size_t page_bytes() const noexcept { return page_bytes_; }
  size_t window_bytes() const noexcept { return window_bytes_; }
  bool is_image(size_t bytes) const noexcept { return bytes == page_bytes_ || bytes == page_bytes_ - window_bytes_; }
  bool has_image(int64_t sequence, int64_t i_page, size_t bytes) const noexcept {
    return is_image(bytes) && (bytes < page_bytes_ || window_bytes_ == 0 || tables_.holds_window(sequence, i_page));
  }
  void read_page(int64_t sequence, int64_t i_page, std::span<std::byte> image) const noexcept;
  void append_page(int64_t sequence, int64_t n_more, std::span<const std::byte> image) noexcept;
  // Layer by layer K, then V, of the first n_positions positions: position-major, heads ascending within a position.
  // Error(bad_request) where some of them were given back.
  void visit(int64_t sequence, int64_t n_positions, const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  struct Layer {
    int64_t n_kv_heads = 0;
    bool has_window = false;
    CacheHead first;                    // of KV head 0; no pointers
    size_t k = 0, v = 0, v_scales = 0;  // where they begin in the memory
    size_t k_head_bytes = 0, v_head_bytes = 0, v_scales_head_bytes = 0;
  };
  // Calls visit(its begin in memory, bytes) for every piece of a page of either pool.
  template <class Visit>
  void for_pieces(bool of_windows, int32_t page, const Visit& visit) const noexcept;
  template <class Visit>
  void for_image(int64_t sequence, int64_t i_page, size_t bytes, const Visit& visit) const noexcept;
  void copy_page(bool of_windows, const std::optional<pages::PageCopy>& copy) noexcept;
  void copy_pages(const pages::CacheCopies& copies) noexcept {
    copy_page(false, copies.all), copy_page(true, copies.window);
  }

  std::vector<Layer> layers_;
  ops::CacheType type_k_, type_v_;
  size_t page_bytes_ = 0, window_bytes_ = 0;
  const ops::CacheWindows windows_;
  pages::CacheTables tables_;
  mutable base::AlignedBuffer memory_;
};

}  // namespace assay::backend::cpu
