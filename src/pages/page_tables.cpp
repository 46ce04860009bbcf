// See page_tables.h.
#include "pages/page_tables.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace assay::pages {

PageTables::PageTables(int64_t n_tables, int64_t n_positions_max, int64_t n_pages)
    : pool_(n_pages), n_entries_(pages_of(n_positions_max) + kTableAhead), n_positions_(static_cast<size_t>(n_tables)),
      memory_(static_cast<uint64_t>(n_tables) * static_cast<uint64_t>(n_entries_) * sizeof(int32_t),
              "the tables of the KV cache's pages") {}

int64_t PageTables::n_needed(int64_t table, int64_t n_more) const noexcept {
  if (n_more <= 0) return 0;
  const int64_t n = n_positions(table);
  const bool writes_into_shared = n % kPagePositions != 0 && holds(table, n / kPagePositions) &&
                                  pool_.is_shared(this->table(table)[n / kPagePositions]);
  return pages_of(n + n_more) - pages_of(n) + (writes_into_shared ? 1 : 0);
}

std::optional<PageCopy> PageTables::extend(int64_t table, int64_t n_more) noexcept {
  assert(n_needed(table, n_more) <= pool_.n_ready());
  if (n_more <= 0) return std::nullopt;
  int64_t& n = n_positions_[static_cast<size_t>(table)];
  assert(n % kPagePositions == 0 || holds(table, n / kPagePositions));
  int32_t* const pages = own(table);
  std::optional<PageCopy> copy;
  if (n % kPagePositions != 0 && pool_.is_shared(pages[n / kPagePositions])) {
    int32_t& last = pages[n / kPagePositions];
    copy = PageCopy{last, pool_.take()};
    pool_.leave(last);
    last = copy->to;
  }
  for (int64_t i = pages_of(n); i < pages_of(n + n_more); ++i) pages[i] = pool_.take();
  n += n_more;
  return copy;
}

void PageTables::truncate(int64_t table, int64_t n_positions) noexcept {
  int64_t& n = n_positions_[static_cast<size_t>(table)];
  const int64_t kept = std::clamp<int64_t>(n_positions, 0, n);
  for (int64_t i = pages_of(n); i-- > pages_of(kept);) {
    if (holds(table, i)) pool_.leave(this->table(table)[i]);
  }
  n = kept;
}

std::optional<PageCopy> PageTables::fork(int64_t from, int64_t n_positions, int64_t to) noexcept {
  assert(from != to && n_positions >= 0 && n_positions <= this->n_positions(from));
  truncate(to, 0);
  const int64_t n_full = n_positions / kPagePositions;
  for (int64_t i = 0; i < n_full; ++i) {
    own(to)[i] = table(from)[i];
    if (table(from)[i] != kNoPage) pool_.share(table(from)[i]);
  }
  n_positions_[static_cast<size_t>(to)] = n_positions;
  if (n_positions % kPagePositions == 0) return std::nullopt;
  assert(holds(from, n_full));
  own(to)[n_full] = pool_.take();
  return PageCopy{table(from)[n_full], table(to)[n_full]};
}

int64_t PageTables::n_usable(int64_t table, int64_t n, const FirstSeen& first_seen) const {
  n = std::clamp<int64_t>(n, 0, n_positions(table));
  while (n > 0) {
    const int64_t seen = first_seen(n),
                  first = (n % kPagePositions == 0 ? seen : std::min(seen, n - 1)) / kPagePositions;
    int64_t i = pages_of(n);
    while (i > first && holds(table, i - 1)) --i;
    if (i <= first) return n;
    n = (i - 1) * kPagePositions;  // the longest that does not need the page that is missing
  }
  return 0;
}

void PageTables::forget(int64_t table, int64_t begin, int64_t end, const FirstSeen& first_seen) {
  if (begin >= end) return;
  const int64_t stop = std::min(first_seen(end) / kPagePositions, n_positions(table) / kPagePositions);
  for (int64_t i = pages_of(begin); i < stop; ++i) {
    if (!holds(table, i)) continue;
    int32_t& page = own(table)[i];
    pool_.leave(page);
    page = kNoPage;
  }
}

void PageTables::extend_by_hole(int64_t table, int64_t n_more) noexcept {
  int64_t& n = n_positions_[static_cast<size_t>(table)];
  assert(n % kPagePositions == 0 && n_more > 0 && n_more <= kPagePositions);
  own(table)[n / kPagePositions] = kNoPage;
  n += n_more;
}

}  // namespace assay::pages
