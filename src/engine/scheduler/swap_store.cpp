// See swap_store.h.
#include "engine/scheduler/swap_store.h"

#include <algorithm>
#include <new>

namespace assay::engine {

bool SwapStore::save(uint64_t id, const SequenceTables& tables, int sequence) {
  drop(id);
  const int64_t n_pages = tables.pages_of(tables.n_positions(sequence));
  int64_t bytes = 0;
  for (int64_t i = 0; i < n_pages; ++i) bytes += static_cast<int64_t>(tables.image_bytes(sequence, i));
  if (n_pages == 0 || bytes > bytes_max_ - bytes_) return false;
  try {
    Kept kept{tables.n_positions(sequence), {}, std::vector<std::byte>(static_cast<size_t>(bytes))};
    for (int64_t i = 0; i < n_pages; ++i) {
      const size_t begin = i == 0 ? 0 : kept.ends.back(), image_bytes = tables.image_bytes(sequence, i);
      if (!tables.read_page(sequence, i, std::span(kept.images).subspan(begin, image_bytes))) return false;
      kept.ends.push_back(begin + image_bytes);
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
  if (kept.n_positions > n_before) {
    tables.truncate_to_page(sequence);
    for (int64_t at = tables.n_positions(sequence); at < kept.n_positions && tables.make_room(1);) {
      const int64_t n = std::min(page, kept.n_positions - at);
      const auto its_tokens = tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n));
      if (!tables.append_page(sequence, its_tokens, kept.image(at / page))) break;
      at += n;
    }
    tables.truncate(sequence,
                    tables.n_positions(sequence));  // where it did not get to the end, to a window that is there
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
