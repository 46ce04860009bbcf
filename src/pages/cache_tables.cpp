// See cache_tables.h.
#include "pages/cache_tables.h"

#include <string>

#include "assay/error.h"

namespace assay::pages {

CacheTables::CacheTables(int64_t n_tables, int64_t n_positions_max, int64_t n_pages, PageTables::FirstSeen first_seen,
                         int64_t n_window_pages)
    : first_seen_(std::move(first_seen)), all_(n_tables, n_positions_max, n_pages),
      window_(has_windows() ? n_tables : 0, n_positions_max, has_windows() ? n_window_pages : 0) {}

CachePage CacheTables::page(int64_t table, int64_t i_page) const noexcept {
  return {all_.table(table)[i_page], has_windows() ? window_.table(table)[i_page] : PageTables::kNoPage};
}

int64_t CacheTables::n_needed(int64_t table, int64_t n_more) const noexcept {
  const int64_t n = all_.n_needed(table, n_more);
  return has_windows() ? std::max(n, window_.n_needed(table, n_more)) : n;
}

CacheCopies CacheTables::extend(int64_t table, int64_t n_more) noexcept {
  return {all_.extend(table, n_more), has_windows() ? window_.extend(table, n_more) : std::nullopt};
}

CacheCopies CacheTables::fork(int64_t from, int64_t n_positions, int64_t to) noexcept {
  return {all_.fork(from, n_positions, to), has_windows() ? window_.fork(from, n_positions, to) : std::nullopt};
}

void CacheTables::truncate(int64_t table, int64_t n_positions) noexcept {
  all_.truncate(table, n_positions);
  if (has_windows()) window_.truncate(table, n_positions);
}

void CacheTables::forget(int64_t table, int64_t begin, int64_t end) {
  if (has_windows()) window_.forget(table, begin, end, first_seen_);
}

void CacheTables::check_whole(int64_t table, int64_t n_positions) const {
  for (int64_t i = 0; i < pages_of(n_positions); ++i) {
    if (holds_window(table, i)) continue;
    throw Error(Errc::bad_request, "the cache of sequence " + std::to_string(table) +
                                       " is not whole: what lies behind its layers' window was given back");
  }
}

void CacheTables::append_page(int64_t table, int64_t n_more, bool with_window) noexcept {
  all_.extend(table, n_more);  // behind full pages: nothing is copied
  if (has_windows() && with_window) {
    window_.extend(table, n_more);
  } else if (has_windows()) {
    window_.extend_by_hole(table, n_more);
  }
}

void CacheTables::pin(const CachePage& page) noexcept {
  if (page.all != PageTables::kNoPage) all_.pin(page.all);
  if (page.window != PageTables::kNoPage) window_.pin(page.window);
}

void CacheTables::unpin(const CachePage& page) noexcept {
  if (page.all != PageTables::kNoPage) all_.unpin(page.all);
  if (page.window != PageTables::kNoPage) window_.unpin(page.window);
}

bool CacheTables::is_pinned(const CachePage& page) const noexcept {
  return (page.all != PageTables::kNoPage && all_.pool().is_pinned(page.all)) ||
         (page.window != PageTables::kNoPage && window_.pool().is_pinned(page.window));
}

}  // namespace assay::pages
