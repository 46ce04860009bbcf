// The tables of a cache some of whose layers look back over a window alone: these have a pool and tables of their own,
// so that what lies behind the window can be given back. No table of theirs holds more than the one of the layers that
// see all positions; their pool may have fewer pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "pages/page_tables.h"

namespace assay::pages {

// A page of positions in either pool; kNoPage: not in this one.
struct CachePage {
  int32_t all = PageTables::kNoPage, window = PageTables::kNoPage;
};

// What the caller has to copy in either pool.
struct CacheCopies {
  std::optional<PageCopy> all, window;
};

class CacheTables {
 public:
  // first_seen, n_window_pages: of the layers with a window; empty where there are none.
  CacheTables(int64_t n_tables, int64_t n_positions_max, int64_t n_pages, PageTables::FirstSeen first_seen,
              int64_t n_window_pages);

  bool has_windows() const noexcept { return static_cast<bool>(first_seen_); }
  const PageTables& all() const noexcept { return all_; }
  const PageTables& window() const noexcept { return window_; }  // empty where there are none
  int64_t n_positions(int64_t table) const noexcept { return all_.n_positions(table); }
  bool holds_window(int64_t table, int64_t i_page) const noexcept {
    return !has_windows() || window_.holds(table, i_page);
  }
  CachePage page(int64_t table, int64_t i_page) const noexcept;

  // As PageTables and PagePool have them, of both.
  int64_t n_free() const noexcept { return least(&PagePool::n_free); }
  int64_t n_ready() const noexcept { return least(&PagePool::n_ready); }
  int64_t n_needed(int64_t table, int64_t n_more) const noexcept;
  CacheCopies extend(int64_t table, int64_t n_more) noexcept;
  CacheCopies fork(int64_t from, int64_t n_positions, int64_t to) noexcept;
  void truncate(int64_t table, int64_t n_positions) noexcept;
  int64_t n_usable(int64_t table, int64_t n) const {
    return has_windows() ? window_.n_usable(table, n, first_seen_) : n;
  }
  void forget(int64_t table, int64_t begin, int64_t end);
  // Error(bad_request) where a page of these positions was given back.
  void check_whole(int64_t table, int64_t n_positions) const;
  // n_more positions of one page at most, behind full pages; the windows' layers have a hole there, or a page.
  void append_page(int64_t table, int64_t n_more, bool with_window) noexcept;
  void pin(const CachePage& page) noexcept;
  void unpin(const CachePage& page) noexcept;
  bool is_pinned(const CachePage& page) const noexcept;

 private:
  int64_t least(int64_t (PagePool::*count)() const noexcept) const noexcept {
    const int64_t n = (all_.pool().*count)();
    return has_windows() ? std::min(n, (window_.pool().*count)()) : n;
  }

  PageTables::FirstSeen first_seen_;
  PageTables all_, window_;
};

}  // namespace assay::pages
