// See sequence_tables.h.
#include "engine/scheduler/sequence_tables.h"

#include <algorithm>

#include "engine/context_state.h"
#include "engine/model_state.h"

namespace assay::engine {

int64_t n_common(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

SequenceTables::SequenceTables(Context& context, bool keeps)
    : context_(&context), keeps_(keeps), page_positions_(context.state().executor->pages().n_positions),
      n_pages_(context.state().executor->pages().n_pages),
      window_bytes_(context.state().executor->pages().window_bytes),
      has_states_(!context.model().state().built.plan.states.empty()),
      slots_(static_cast<size_t>(context.state().n_sequences())) {
  free_.reserve(slots_.size());
  for (size_t i = slots_.size(); i-- > 0;) free_.push_back(static_cast<int>(i));
}

int64_t SequenceTables::n_pages_free() const { return context_->state().executor->pages().n_free; }
int64_t SequenceTables::used_bytes() const {
  return static_cast<int64_t>(context_->state().executor->pages().used_bytes);
}
size_t SequenceTables::page_bytes() const { return context_->state().executor->pages().page_bytes; }

int64_t SequenceTables::pages_of(int64_t n_positions) const noexcept {
  return has_pages() ? (n_positions + page_positions_ - 1) / page_positions_ : 0;
}

int64_t SequenceTables::n_pages_needed(int sequence, int64_t n_more) const {
  return has_pages() ? context_->state().executor->n_pages_needed(sequence, n_more) : 0;
}

int64_t SequenceTables::n_usable(int sequence, int64_t n) const {
  return context_->state().executor->n_usable(sequence, n);
}

// Of what is kept and, where pages can be shared, of what is in use.
SequenceTables::Hit SequenceTables::find(std::span<const TokenId> tokens, std::string_view salt) {
  if (window_bytes_ > 0 || (has_states_ && has_pages())) return find_usable(tokens, salt);
  const pages::PrefixTree::Hit kept = kept_.find(salt, tokens);
  Hit best{kept.sequence, kept.n, kept.n};
  if (has_pages() && keeps_) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      if (!slot.is_taken || slot.salt != salt) continue;
      const int64_t n = n_common(slot.tokens, tokens);
      if (n > best.n) best = {static_cast<int>(i), n, n};
    }
  }
  return best;
}

// With windows and states the tree knows too little: of two that begin alike one may have what the other one has not.
SequenceTables::Hit SequenceTables::find_usable(std::span<const TokenId> tokens, std::string_view salt) {
  Hit best;
  if (!keeps_) return best;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const auto sequence = static_cast<int>(i);
    if ((!slot.is_taken && !slot.is_kept) || slot.salt != salt) continue;
    const int64_t n_same = n_common(slot.tokens, tokens);
    best.n_common = std::max(best.n_common, n_same);
    const int64_t n_wanted = std::min<int64_t>(n_same, static_cast<int64_t>(tokens.size()) - 1);
    if (n_wanted < best.n) continue;
    const int64_t n = n_usable(sequence, n_wanted);
    const bool is_better = n > best.n || (n > 0 && n == best.n && slot.is_kept && !kept_.holds(best.sequence));
    if (is_better) best.sequence = sequence, best.n = n;
  }
  if (kept_.holds(best.sequence)) kept_.find(salt, slot(best.sequence).tokens);  // it counts as used
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

SequenceTables::Place SequenceTables::take(std::span<const TokenId> tokens, std::string_view salt, int64_t n_prompt) {
  // Where no page is free for a copy of one that is shared in part, what is kept makes room. The last one of it would
  // lose its last page: where that is the one to be copied, it is taken over instead.
  const auto gives_up_its_end = [this](const Hit& hit) {
    return n_pages_free() == 0 && kept_.oldest() == hit.sequence &&
           pages_of(hit.n) == pages_of(n_positions(hit.sequence));
  };
  Hit hit = find(tokens, salt);
  if (has_pages() && !gives_up_its_end(hit)) {
    make_room(1);
    hit = find(tokens, salt);
  }
  const int64_t n = std::min<int64_t>(hit.n, static_cast<int64_t>(tokens.size()) - 1);
  Place place;
  const bool is_last_place = free_.empty() && kept_.size() == 1;  // which a copy would need
  const bool takes_over = n > 0 && kept_.holds(hit.sequence) &&
                          (!has_pages() || is_last_place || n == n_positions(hit.sequence) || gives_up_its_end(hit));
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
  taken.n_prompt = n_prompt;
  taken.n_parted = hit.n_common >= page_positions_ ? hit.n_common : 0;
  taken.n_given_back = 0;
  give_back_windows(place.sequence);
  return place;
}

int64_t SequenceTables::copy(int from, int64_t n_tokens, int sequence) {
  ops::Executor& executor = *context_->state().executor;
  int64_t n = n_usable(from, std::min(n_tokens, n_positions(from)));
  slot(sequence).tokens.reserve(static_cast<size_t>(n));  // whatever fails, fails before anything has changed
  if (!executor.fork(from, n, sequence)) {                // no page for a part of one
    n = page_positions_ == 0 ? 0 : n_usable(from, n / page_positions_ * page_positions_);
    if (n == 0 || !executor.fork(from, n, sequence)) n = 0;
  }
  const std::vector<TokenId>& source = slot(from).tokens;
  slot(sequence).tokens.assign(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

void SequenceTables::truncate(int sequence, int64_t n_positions) {
  context_->truncate(n_positions, sequence);
  std::vector<TokenId>& tokens = slot(sequence).tokens;
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(context_->n_past(sequence))));
}

void SequenceTables::truncate_to_page(int sequence) {
  for (int64_t n = n_positions(sequence); n % page_positions_ != 0; n = n_positions(sequence)) {
    truncate(sequence, n / page_positions_ * page_positions_);
  }
}

void SequenceTables::give_back_windows(int sequence) {
  if (window_bytes_ == 0) return;
  Slot& s = slot(sequence);
  // Of a length that is kept, that of its last page's begin as well: a prompt that comes again is a hit but for its
  // last token, and whole pages are what is saved.
  const auto page_before = [page = page_positions_](int64_t length) { return (length - 1) / page * page; };
  const int64_t n = n_positions(sequence), end = page_before(n);
  if (end == s.n_given_back) return;
  s.n_given_back = end;
  ops::Executor& executor = *context_->state().executor;
  int64_t begin = 0;
  for (const int64_t kept : {std::min(s.n_parted, s.n_prompt), std::max(s.n_parted, s.n_prompt)}) {
    if (!keeps_ || kept <= begin || kept >= n) continue;
    executor.forget(sequence, begin, page_before(kept));
    begin = kept;
  }
  executor.forget(sequence, begin, end);
}

void SequenceTables::clear(int sequence) {
  kept_.remove(sequence);
  truncate(sequence, 0);
  slot(sequence).is_taken = slot(sequence).is_kept = false;
  slot(sequence).n_given_back = 0;
  free_.push_back(sequence);
}

void SequenceTables::give_back(int sequence) {
  Slot& given = slot(sequence);
  if (!keeps_ || given.tokens.empty()) return clear(sequence);
  give_back_windows(sequence);
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
    int64_t n_left = kept_.drop_page(*oldest);
    while (n_left > 0 && n_usable(*oldest, n_left) < n_left) n_left = kept_.drop_page(*oldest);  // its window is gone
    n_left == 0 ? clear(*oldest) : truncate(*oldest, n_left);
  }
  return true;
}

int64_t SequenceTables::n_positions_taken() const noexcept {
  int64_t n = 0;
  for (const Slot& slot : slots_) n += slot.is_taken ? static_cast<int64_t>(slot.tokens.size()) : 0;
  return n;
}

size_t SequenceTables::image_bytes(int sequence, int64_t i_page) const {
  const size_t bytes = page_bytes();
  return context_->state().executor->holds_window(sequence, i_page) ? bytes : bytes - window_bytes_;
}

bool SequenceTables::begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image,
                                     base::PendingCopies& copies) const {
  return context_->state().executor->begin_read_page(sequence, i_page, image, copies);
}

bool SequenceTables::begin_append_page(int sequence, std::span<const TokenId> tokens, std::span<const std::byte> image,
                                       base::PendingCopies& copies) {
  Slot& to = slot(sequence);
  to.tokens.reserve(to.tokens.size() + tokens.size());
  ops::Executor& executor = *context_->state().executor;
  if (!executor.begin_append_page(sequence, static_cast<int64_t>(tokens.size()), image, copies)) return false;
  to.tokens.insert(to.tokens.end(), tokens.begin(), tokens.end());
  return true;
}

bool SequenceTables::is_ready(int sequence) const { return context_->state().executor->is_ready(sequence); }

}  // namespace assay::engine
