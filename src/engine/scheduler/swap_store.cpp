// See swap_store.h.
#include "engine/scheduler/swap_store.h"

#include <algorithm>
#include <new>
#include <utility>

#include "assay/error.h"

namespace assay::engine {

bool SwapStore::save(uint64_t id, const SequenceTables& tables, int sequence) {
  drop(id);
  const int64_t n_pages = tables.pages_of(tables.n_positions(sequence));
  int64_t bytes = 0;
  for (int64_t i = 0; i < n_pages; ++i) bytes += static_cast<int64_t>(tables.image_bytes(sequence, i));
  if (n_pages == 0 || bytes > bytes_max_ - bytes_) return false;
  try {
    Kept kept{tables.n_positions(sequence),
              {},
              base::AlignedBuffer(static_cast<uint64_t>(bytes), "pages of a request that waits"),
              std::make_unique<base::PendingCopies>()};
    for (int64_t i = 0; i < n_pages; ++i) {
      const size_t begin = i == 0 ? 0 : kept.ends.back(), image_bytes = tables.image_bytes(sequence, i);
      const std::span<std::byte> image = kept.images.bytes().subspan(begin, image_bytes);
      if (!tables.begin_read_page(sequence, i, image, *kept.copies)) return false;
      kept.ends.push_back(begin + image_bytes);
    }
    kept_.emplace(id, std::move(kept));
  } catch (const std::bad_alloc&) {
    return false;  // the machine has no room either: it is computed again
  } catch (const Error& error) {
    if (error.code != Errc::out_of_memory) throw;
    return false;
  }
  bytes_ += bytes;
  return true;
}

int64_t SwapStore::restore(uint64_t id, SequenceTables& tables, int sequence, std::span<const TokenId> tokens) {
  const auto found = kept_.find(id);
  if (found == kept_.end()) return 0;
  const Kept& kept = found->second;
  const int64_t n_before = tables.n_positions(sequence), page = tables.page_positions();
  if (kept.n_positions > n_before && kept.copies->wait()) {
    tables.truncate_to_page(sequence);
    for (int64_t at = tables.n_positions(sequence); at < kept.n_positions && tables.make_room(1);) {
      const int64_t n = std::min(page, kept.n_positions - at);
      const auto its_tokens = tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(n));
      if (!tables.begin_append_page(sequence, its_tokens, kept.image(at / page), *kept.copies)) break;
      at += n;
    }
    tables.truncate(sequence,
                    tables.n_positions(sequence));  // where it did not get to the end, to a window that is there
  }
  const int64_t n_after = tables.n_positions(sequence);
  drop(id);
  return std::max<int64_t>(n_after - n_before, 0);
}

bool SwapStore::is_on_its_way(uint64_t id) const {
  const auto found = kept_.find(id);
  return found != kept_.end() && !found->second.copies->is_over();
}

void SwapStore::drop(uint64_t id) {
  if (auto dropped = kept_.extract(id)) leaving_.insert(std::move(dropped));
  forget_copied();
}

void SwapStore::forget_copied() {
  std::erase_if(leaving_, [this](const auto& entry) {
    const Kept& kept = entry.second;
    if (!kept.copies->is_over()) return false;
    bytes_ -= static_cast<int64_t>(kept.images.size());
    return true;
  });
}

}  // namespace assay::engine
