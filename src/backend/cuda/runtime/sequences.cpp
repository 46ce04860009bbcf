// See sequences.h.
#include "backend/cuda/runtime/sequences.h"

#include <algorithm>
#include <string>

#include "assay/error.h"
#include "ops/plan/batch_shape.h"

namespace assay::backend::cuda {
namespace {

// False: there is no memory for what is begun.
template <class Copy>
bool begins(const Copy& copy) {
  try {
    copy();
  } catch (const Error& error) {
    if (error.code != Errc::out_of_memory) throw;
    return false;
  }
  return true;
}

}  // namespace

Sequences::Sequences(DeviceState& state)
    : state_(state), n_positions_(static_cast<size_t>(state.options.n_sequences), 0),
      images_(state.cache, state.stream.get()) {
  ahead_.reserve(n_positions_.size());
}

int64_t Sequences::n_positions(int sequence) const {
  ops::check_sequence(sequence, state_.options);
  return n_positions_[static_cast<size_t>(sequence)];
}

int64_t Sequences::truncate_states(int sequence, int64_t n_positions) {
  const int64_t held = n_positions_[static_cast<size_t>(sequence)];
  const int64_t on_host = state_.borrower->states().truncate(sequence, n_positions, held);
  const int64_t here = state_.states.truncate(sequence, n_positions, held, state_.stream.get());
  return std::min(on_host, here);  // alike, but where one keeps nothing
}

void Sequences::truncate(int sequence, int64_t n_positions) {
  ops::check_sequence(sequence, state_.options);
  int64_t& held = n_positions_[static_cast<size_t>(sequence)];
  n_positions = tables().n_usable(sequence, std::clamp<int64_t>(n_positions, 0, held));
  const int64_t left = truncate_states(sequence, n_positions);
  if (left < held) state_.cache.truncate(sequence, left);
  held = left;
}

void Sequences::visit(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const {
  const int64_t n = n_positions(sequence);
  copies().make_ready(sequence);
  state_.cache.visit(sequence, n, sink);
  for (size_t i = 0; n > 0 && i < state_.plan.states.size(); ++i) {
    const auto state = static_cast<int32_t>(i);
    if (state_.states.has(state)) {
      sink(std::as_bytes(std::span<const float>(state_.states.read(sequence, state, n))));
    } else {
      sink(std::as_bytes(state_.borrower->states().state(sequence, state)));
    }
  }
}

void Sequences::begin(bool is_next) {
  if (is_next) {
    ahead_.clear();
  } else {
    forget_next();
    const std::vector<int64_t>& after = state_.shape.n_positions;
    int64_t n_needed = 0;
    for (size_t i = 0; i < n_positions_.size(); ++i) {
      if (after[i] <= n_positions_[i]) continue;
      const auto sequence = static_cast<int64_t>(i);
      n_needed += tables().n_needed(sequence, after[i] - n_positions_[i]);
      if (tables().n_usable(sequence, n_positions_[i]) < n_positions_[i]) {
        throw Error(Errc::bad_request, "sequence " + std::to_string(i) + " cannot go on behind " +
                                           std::to_string(n_positions_[i]) + " positions: their window was given back");
      }
    }
    if (n_needed > tables().n_free()) {
      throw Error(Errc::out_of_memory, "a batch of " + std::to_string(state_.shape.token_runs.size()) +
                                           " runs of tokens needs " + std::to_string(n_needed) +
                                           " pages of the KV cache; " + std::to_string(tables().n_free()) + " of " +
                                           std::to_string(tables().all().pool().n_pages()) + " are free");
    }
    make_ready(after);
    copies().free_up(n_needed);
    state_.cache.reserve(n_needed, state_.stream.get());
    for (size_t i = 0; i < n_positions_.size(); ++i) {
      if (after[i] > n_positions_[i])
        state_.cache.extend(static_cast<int64_t>(i), after[i] - n_positions_[i], state_.stream.get());
    }
    const int64_t n_alone = state_.tokens_alone ? state_.n_tiles : state_.n_tiles_alone;
    for (int64_t i = 0; i < n_alone; ++i) state_.cache.place(i, state_.sequence_of_tile(i));
    state_.cache.send_tables(state_.stream.get());
  }
  state_.borrower->states().begin(state_.shape.token_runs);
  state_.states.begin(state_.shape.token_runs);
}

void Sequences::end() {
  state_.borrower->states().end();
  state_.states.end();
  n_positions_ = state_.shape.n_positions;
}

void Sequences::take_back() noexcept {
  ahead_.clear();
  for (size_t i = 0; i < n_positions_.size(); ++i) {
    int64_t& held = n_positions_[i];
    try {
      held = truncate_states(static_cast<int>(i), held);
    } catch (const Error&) {  // of a device that has failed, which the error on its way says
    }
    state_.cache.truncate(static_cast<int64_t>(i), held);
  }
}

// Those that the batch goes on with.
void Sequences::make_ready(const std::vector<int64_t>& after) {
  if (copies().are_idle()) return;
  for (size_t i = 0; i < n_positions_.size(); ++i) {
    if (after[i] > n_positions_[i]) copies().make_ready(static_cast<int64_t>(i));
  }
}

bool Sequences::reserves(int64_t n_pages) {
  if (n_pages > tables().n_free()) return false;
  copies().free_up(n_pages);
  return begins([&] { state_.cache.reserve(n_pages, state_.stream.get()); });
}

bool Sequences::begin_next() {
  int64_t n_needed = 0;
  for (const ops::TokenRun& run : state_.shape.token_runs) {
    // It would write over a checkpoint of states.
    if (state_.states.is_checkpoint(state_.shape.n_positions[static_cast<size_t>(run.sequence)] + 1)) return false;
    if (!copies().is_ready(run.sequence)) return false;
    n_needed += tables().n_needed(run.sequence, 1);
  }
  if (n_needed > tables().n_ready() || !reserves(n_needed)) return false;
  for (const ops::TokenRun& run : state_.shape.token_runs) {
    ahead_.push_back(static_cast<int>(run.sequence));
    state_.cache.extend(run.sequence, 1, state_.stream.get());
  }
  state_.cache.send_tables(state_.stream.get());
  return true;
}

void Sequences::forget_next() noexcept {
  for (const int sequence : ahead_) state_.cache.truncate(sequence, n_positions_[static_cast<size_t>(sequence)]);
  ahead_.clear();
}

ops::CachePages Sequences::pages() const noexcept {
  int64_t n_ahead = 0;
  for (const int sequence : ahead_) {
    const int64_t n =
        pages::pages_of(tables().n_positions(sequence)) - pages::pages_of(n_positions_[static_cast<size_t>(sequence)]);
    n_ahead += std::max<int64_t>(n, 0);
  }
  const KvCache& cache = state_.cache;
  return {kCachePage,
          tables().all().pool().n_pages(),
          tables().n_free() + n_ahead,
          cache.page_bytes(),
          cache.window_bytes(),
          cache.used_bytes(n_ahead),
          true};
}

int64_t Sequences::n_pages_needed(int sequence, int64_t n_more) const {
  const int64_t n = n_positions(sequence);
  if (tables().n_positions(sequence) <= n) return tables().n_needed(sequence, n_more);
  return n_more <= 0 ? 0 : pages::pages_of(n + n_more) - pages::pages_of(n);  // its last page is its own already
}

bool Sequences::fork(int from, int64_t n_positions, int to) {
  ops::check_sequence(from, state_.options);
  ops::check_sequence(to, state_.options);
  const int64_t n_held = this->n_positions(from);
  n_positions = std::clamp<int64_t>(n_positions, 0, n_held);
  if (n_usable(from, n_positions) < n_positions) return false;
  forget_next();
  if (from == to) return truncate(to, n_positions), true;
  truncate(to, 0);
  copies().make_ready(from);
  if (n_positions % kCachePage != 0 && !reserves(1)) return false;
  state_.cache.fork(from, n_positions, to, state_.stream.get());
  state_.borrower->states().fork(from, n_positions, n_held, to);
  state_.states.fork(from, n_positions, n_held, to, state_.stream.get());
  n_positions_[static_cast<size_t>(to)] = n_positions;
  return true;
}

int64_t Sequences::n_usable(int sequence, int64_t n) const {
  const int64_t n_held = n_positions(sequence);
  n = std::clamp<int64_t>(n, 0, n_held);
  for (int64_t before = -1; before != n;) {  // what all of them can go on behind
    before = n;
    n = state_.borrower->states().n_usable(sequence, n, n_held);
    n = tables().n_usable(sequence, state_.states.n_usable(sequence, n, n_held));
  }
  return n;
}

void Sequences::forget(int sequence, int64_t begin, int64_t end) {
  const int64_t n = n_positions(sequence);
  if (state_.plan.states.empty()) state_.cache.forget(sequence, std::max<int64_t>(0, begin), std::min(end, n));
}

bool Sequences::holds_window(int sequence, int64_t i_page) const {
  ops::check_sequence(sequence, state_.options);
  return tables().holds_window(sequence, i_page);
}

bool Sequences::begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image,
                                base::PendingCopies& copies) const {
  if (!state_.plan.states.empty()) return false;  // pages hold none
  if (i_page < 0 || i_page * kCachePage >= n_positions(sequence) || !state_.cache.is_image(image.size())) return false;
  assay::pages::CachePage page = tables().page(sequence, i_page);
  if (image.size() < state_.cache.page_bytes()) {
    page.window = assay::pages::PageTables::kNoPage;
  } else if (!tables().holds_window(sequence, i_page)) {
    return false;
  }
  return image.empty() || begins([&] { this->copies().read(page, image, copies); });
}

bool Sequences::begin_append_page(int sequence, int64_t n_more, std::span<const std::byte> image,
                                  base::PendingCopies& copies) {
  const int64_t n = n_positions(sequence);
  if (!state_.plan.states.empty() || n % kCachePage != 0 || n_more < 1 || n_more > kCachePage ||
      n + n_more > state_.options.n_ctx || !state_.cache.is_image(image.size())) {
    return false;
  }
  forget_next();
  if (!reserves(1)) return false;
  state_.cache.append_page(sequence, n_more, image.size() == state_.cache.page_bytes());
  const assay::pages::CachePage page = tables().page(sequence, n / kCachePage);
  if (!image.empty() && !begins([&] { this->copies().write(image, page, copies); })) {
    state_.cache.truncate(sequence, n);
    return false;
  }
  n_positions_[static_cast<size_t>(sequence)] = n + n_more;
  return true;
}

bool Sequences::is_ready(int sequence) const {
  ops::check_sequence(sequence, state_.options);
  return copies().is_ready(sequence);
}

}  // namespace assay::backend::cuda
