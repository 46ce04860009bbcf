// See swap_store.h.
#include "engine/scheduler/swap_store.h"

#include <algorithm>
#include <new>

namespace assay::engine {

bool SwapStore::save(uint64_t id, const SequenceTables& tables, int sequence) {
  drop(id);
  const int64_t n_positions = tables.n_positions(sequence), n_pages = tables.pages_of(n_positions);
  const size_t page_bytes = tables.page_bytes();
  const auto bytes = n_pages * static_cast<int64_t>(page_bytes);
  if (n_pages == 0 || bytes > bytes_max_ - bytes_) return false;
  try {
    Kept kept{n_positions, std::vector<std::byte>(static_cast<size_t>(bytes))};
    for (int64_t i = 0; i < n_pages; ++i) {
      if (!tables.read_page(sequence, i,
                            std::span(kept.images).subspan(static_cast<size_t>(i) * page_bytes, page_bytes)))
        return false;
    }
    kept_.emplace(id, std::move(kept));
  } catch (const std::bad_alloc&) {
    return false;  // the machine has no room either: it is computed again
  }
  bytes_ += bytes;
  return true;
}

int64_t SwapStore::restore(uint64_t id, SequenceTables& tables, int sequence, std::span<const TokenId> tokens) {
  const auto found = kept_.find(id);
  if (found == kept_.end()) return 0;
  const Kept& kept = found->second;
  const int64_t n_before = tables.n_positions(sequence), page = tables.page_positions();
  const size_t page_bytes = tables.page_bytes();
  if (kept.n_positions > n_before) {
    tables.truncate(sequence, n_before / page * page);
    for (int64_t at = tables.n_positions(sequence); at < kept.n_positions && tables.make_room(1);) {
      const int64_t n = std::min(page, kept.n_positions - at);
      const auto image = std::span(kept.images).subspan(static_cast<size_t>(at / page) * page_bytes, page_bytes);
      if (!tables.append_page(sequence, tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n)), image)) break;
      at += n;
    }
  }
  const int64_t n_after = tables.n_positions(sequence);
  drop(id);
  return std::max<int64_t>(n_after - n_before, 0);
}

void SwapStore::drop(uint64_t id) {
  const auto found = kept_.find(id);
  if (found == kept_.end()) return;
  bytes_ -= static_cast<int64_t>(found->second.images.size());
  kept_.erase(found);
}

}  // namespace assay::engine
