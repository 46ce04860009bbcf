// See sequence_tables.h.
#include "engine/scheduler/sequence_tables.h"

#include <algorithm>

#include "engine/context_state.h"

namespace assay::engine {

SequenceTables::SequenceTables(Context& context, bool keeps)
    : context_(&context),
      keeps_(keeps),
      page_positions_(context.state().executor->pages().n_positions),
      n_pages_(context.state().executor->pages().n_pages),
      slots_(static_cast<size_t>(context.state().n_sequences())) {
  free_.reserve(slots_.size());
  for (size_t i = slots_.size(); i-- > 0;) free_.push_back(static_cast<int>(i));
}

int64_t SequenceTables::n_pages_free() const { return context_->state().executor->pages().n_free; }
size_t SequenceTables::page_bytes() const { return context_->state().executor->pages().page_bytes; }

int64_t SequenceTables::pages_of(int64_t n_positions) const noexcept {
  return has_pages() ? (n_positions + page_positions_ - 1) / page_positions_ : 0;
}

int64_t SequenceTables::n_pages_needed(int sequence, int64_t n_more) const {
  return has_pages() ? context_->state().executor->n_pages_needed(sequence, n_more) : 0;
}

// Of what is kept and, where pages can be shared, of what is in use.
pages::PrefixTree::Hit SequenceTables::find(std::span<const TokenId> tokens, std::string_view salt) {
  pages::PrefixTree::Hit best = kept_.find(salt, tokens);
  if (!has_pages() || !keeps_) return best;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (!slot.is_taken || slot.salt != salt) continue;
    const auto n =
        std::mismatch(slot.tokens.begin(), slot.tokens.end(), tokens.begin(), tokens.end()).first - slot.tokens.begin();
    if (n > best.n) best = {static_cast<int>(i), n};
  }
  return best;
}

// One that holds nothing: a free one, or the least recently used of those that are kept, other than `but` where there
// is another.
int SequenceTables::free_sequence(int but) {
  if (free_.empty()) {
    std::optional<int> oldest = kept_.oldest();
    if (oldest == but && kept_.size() > 1) {
      kept_.find(salt(but), tokens(but));  // used again
      oldest = kept_.oldest();
    }
    clear(*oldest);
  }
  const int sequence = free_.back();
  free_.pop_back();
  return sequence;
}

SequenceTables::Place SequenceTables::take(std::span<const TokenId> tokens, std::string_view salt) {
  // Where no page is free for a copy of one that is shared in part, what is kept makes room. The last one of it would
  // lose its last page: where that is the one to be copied, it is taken over instead.
  const auto gives_up_its_end = [this](const pages::PrefixTree::Hit& hit) {
    return n_pages_free() == 0 && kept_.oldest() == hit.sequence &&
           pages_of(hit.n) == pages_of(n_positions(hit.sequence));
  };
  pages::PrefixTree::Hit hit = find(tokens, salt);
  if (has_pages() && !gives_up_its_end(hit)) {
    make_room(1);
    hit = find(tokens, salt);
  }
  const int64_t n = std::min<int64_t>(hit.n, static_cast<int64_t>(tokens.size()) - 1);
  Place place;
  const bool takes_over =
      n > 0 && kept_.holds(hit.sequence) && (!has_pages() || n == n_positions(hit.sequence) || gives_up_its_end(hit));
  if (takes_over) {
    kept_.remove(hit.sequence);
    place.sequence = hit.sequence;
    truncate(hit.sequence, n);
    place.n_cached = n;
  } else {
    place.sequence = free_sequence(hit.sequence);
  }
  Slot& taken = slot(place.sequence);
  try {
    taken.salt = salt;
    if (n > 0 && !takes_over && place.sequence != hit.sequence) place.n_cached = copy(hit.sequence, n, place.sequence);
  } catch (const std::bad_alloc&) {
    clear(place.sequence);
    throw;
  }
  taken.is_taken = true;
  taken.is_kept = false;
  return place;
}

int64_t SequenceTables::copy(int from, int64_t n_tokens, int sequence) {
  ops::Executor& executor = *context_->state().executor;
  int64_t n = std::min(n_tokens, n_positions(from));
  slot(sequence).tokens.reserve(static_cast<size_t>(n));  // whatever fails, fails before anything has changed
  if (!executor.fork(from, n, sequence)) {                // no page for a part of one
    n = page_positions_ == 0 ? 0 : n / page_positions_ * page_positions_;
    if (n == 0 || !executor.fork(from, n, sequence)) n = 0;
  }
  const std::vector<TokenId>& source = slot(from).tokens;
  slot(sequence).tokens.assign(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

void SequenceTables::truncate(int sequence, int64_t n_positions) {
  context_->truncate(n_positions, sequence);
  std::vector<TokenId>& tokens = slot(sequence).tokens;
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(n_positions)));
}

void SequenceTables::clear(int sequence) {
  kept_.remove(sequence);
  truncate(sequence, 0);
  slot(sequence).is_taken = slot(sequence).is_kept = false;
  free_.push_back(sequence);
}

void SequenceTables::give_back(int sequence) {
  Slot& given = slot(sequence);
  if (!keeps_ || given.tokens.empty()) return clear(sequence);
  const pages::PrefixTree::Added added = kept_.add(given.salt, given.tokens, sequence);
  if (added.replaced) clear(*added.replaced);
  if (added.is_covered) return clear(sequence);
  given.is_taken = false;
  given.is_kept = true;
}

void SequenceTables::forget(int sequence) { truncate(sequence, 0); }

bool SequenceTables::make_room(int64_t n_pages) {
  while (n_pages_free() < n_pages) {
    const std::optional<int> oldest = kept_.oldest();
    if (!oldest) return false;
    const int64_t n_left = kept_.drop_page(*oldest);
    n_left == 0 ? clear(*oldest) : truncate(*oldest, n_left);
  }
  return true;
}

int64_t SequenceTables::n_positions_taken() const noexcept {
  int64_t n = 0;
  for (const Slot& slot : slots_) n += slot.is_taken ? static_cast<int64_t>(slot.tokens.size()) : 0;
  return n;
}

bool SequenceTables::read_page(int sequence, int64_t i_page, std::span<std::byte> image) const {
  return context_->state().executor->read_page(sequence, i_page, image);
}

bool SequenceTables::append_page(int sequence, std::span<const TokenId> tokens, std::span<const std::byte> image) {
  const auto n = static_cast<int64_t>(tokens.size());
  Slot& to = slot(sequence);
  to.tokens.reserve(to.tokens.size() + tokens.size());
  if (!context_->state().executor->append_page(sequence, n, image)) return false;
  to.tokens.insert(to.tokens.end(), tokens.begin(), tokens.end());
  return true;
}

}  // namespace assay::engine
