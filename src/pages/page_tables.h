// Sequences as tables of pages: which page of a pool holds which positions. Two tables may share a page; whoever is
// about to write into a shared one gets a copy of its own first. Where later tokens look back over a window alone,
// pages behind it can be given back: the table has holes then, and can be cut to lengths alone whose window is there.
//
//   [ 0 ][ 1 ][ - ][ - ][ - ][ 5 ][ 6 ][ 7    positions in use end here
//        kept for a shorter length            the window of what comes next
#pragma once

#include <cstdint>
#include <functional>
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
  void pin(int32_t page) noexcept { pool_.pin(page); }
  void unpin(int32_t page) noexcept { pool_.unpin(page); }
  // Page i of the table holds positions 64 i to 64 i + 63; kNoPage: it was given back. kTableAhead entries more may be
  // read than are in use; what they say means nothing.
  static constexpr int64_t kTableAhead = 8;
  static constexpr int32_t kNoPage = -1;
  const int32_t* table(int64_t table) const noexcept { return entries() + table * n_entries_; }
  bool holds(int64_t table, int64_t i_page) const noexcept {
    return i_page < pages_of(n_positions(table)) && this->table(table)[i_page] != kNoPage;
  }

  // Pages that extend() would take of the pool.
  int64_t n_needed(int64_t table, int64_t n_more) const noexcept;
  // n_more positions more; n_needed() pages must be ready. A copy is due where the last page was shared and has room.
  std::optional<PageCopy> extend(int64_t table, int64_t n_more) noexcept;
  void truncate(int64_t table, int64_t n_positions) noexcept;  // what it holds at most from now on
  // `to`, which is emptied first, gets the first n_positions of `from`, another one that holds as many: full pages are
  // shared; of the last one, where it is not full, a copy is due, for which a page must be ready.
  std::optional<PageCopy> fork(int64_t from, int64_t n_positions, int64_t to) noexcept;

  // The first position that a token at this one still sees; never falls where positions ascend.
  using FirstSeen = std::function<int64_t(int64_t position)>;
  // The longest beginning of n positions at most that holds all that tokens behind it see, and the page that they would
  // write into. Only to such lengths may a table be cut, forked and extended.
  int64_t n_usable(int64_t table, int64_t n, const FirstSeen& first_seen) const;
  // Gives back what only lengths above `begin` and below `end` need.
  void forget(int64_t table, int64_t begin, int64_t end, const FirstSeen& first_seen);
  // As extend() by a page at most, behind full pages, with a hole in its place.
  void extend_by_hole(int64_t table, int64_t n_more) noexcept;

 private:
  int32_t* entries() const noexcept { return reinterpret_cast<int32_t*>(memory_.data()); }
  int32_t* own(int64_t table) noexcept { return entries() + table * n_entries_; }

  PagePool pool_;
  int64_t n_entries_;  // of a table
  std::vector<int64_t> n_positions_;
  mutable base::AlignedBuffer memory_;
};

}  // namespace assay::pages
