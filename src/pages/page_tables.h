// Sequences as tables of pages: which page of a pool holds which positions. Two tables may share a page; whoever is
// about to write into a shared one gets a copy of its own first.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/aligned_buffer.h"
#include "pages/page_pool.h"

namespace assay::pages {

inline constexpr int64_t kPagePositions = 64;  // two of the CPU's key tiles; four pages are a segment of attention

constexpr int64_t pages_of(int64_t n_positions) noexcept { return (n_positions + kPagePositions - 1) / kPagePositions; }

// What the caller has to copy, so that the tables tell the truth.
struct PageCopy {
  int32_t from = 0, to = 0;
};

class PageTables {
 public:
  PageTables(int64_t n_tables, int64_t n_positions_max, int64_t n_pages);

  int64_t n_positions(int64_t table) const noexcept { return n_positions_[static_cast<size_t>(table)]; }
  const PagePool& pool() const noexcept { return pool_; }
  // Page i of the table holds positions 64 i to 64 i + 63. kTableAhead entries more may be read than are in use; what
  // they say means nothing.
  static constexpr int64_t kTableAhead = 8;
  const int32_t* table(int64_t table) const noexcept { return entries() + table * n_entries_; }

  // Pages that extend() would take of the pool.
  int64_t n_needed(int64_t table, int64_t n_more) const noexcept;
  // n_more positions more; n_needed() pages must be free. A copy is due where the last page was shared and has room.
  std::optional<PageCopy> extend(int64_t table, int64_t n_more) noexcept;
  void truncate(int64_t table, int64_t n_positions) noexcept;  // what it holds at most from now on
  // `to`, which is emptied first, gets the first n_positions of `from`, another one that holds as many: full pages are
  // shared; of the last one, where it is not full, a copy is due, for which a page must be free.
  std::optional<PageCopy> fork(int64_t from, int64_t n_positions, int64_t to) noexcept;

 private:
  int32_t* entries() const noexcept { return reinterpret_cast<int32_t*>(memory_.data()); }
  int32_t* own(int64_t table) noexcept { return entries() + table * n_entries_; }

  PagePool pool_;
  int64_t n_entries_;  // of a table
  std::vector<int64_t> n_positions_;
  mutable base::AlignedBuffer memory_;
};

}  // namespace assay::pages
