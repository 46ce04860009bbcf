// See state_store.h.
#include "ops/state/state_store.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "assay/error.h"
#include "base/round_up.h"

namespace assay::ops {

StateBook::StateBook(std::span<const StateLayer> layers, const ExecutorOptions& options)
    : layers_(layers.begin(), layers.end()), interval_(std::max<int64_t>(1, options.checkpoint_interval)) {
  for (const StateLayer& layer : layers_) {
    offsets_.push_back(n_elements_);
    n_elements_ += base::round_up(layer.n_floats(), 16);  // whole cache lines
  }
  if (n_elements_ == 0) return;
  const int64_t n_multiples = (options.n_ctx - 1) / interval_;
  n_slots_ = std::min<int>(kCheckpointsMax, static_cast<int>(std::bit_width(static_cast<uint64_t>(n_multiples))));
  running_.assign(static_cast<size_t>(options.n_sequences), 0);
  kept_.assign(running_.size() * static_cast<size_t>(n_slots_ + 1), 0);
  pieces_.reserve(static_cast<size_t>(options.n_batch_max + options.n_batch_max / interval_ + 1));
}

size_t StateBook::bytes(int n_present, size_t element_bytes) const {
  const uint64_t n_copies = running_.size() * static_cast<uint64_t>(n_slots_ + n_present);
  const uint64_t copy_bytes = static_cast<uint64_t>(n_elements_) * element_bytes;
  if (copy_bytes > 0 && n_copies > std::numeric_limits<uint64_t>::max() / copy_bytes)
    throw Error(Errc::out_of_memory, "the states of all sequences need more than 64 bits can count");
  return copy_bytes * n_copies;
}

void StateBook::begin(std::span<const TokenRun> token_runs) {
  pieces_.clear();
  if (n_elements_ == 0) return;
  for (const TokenRun& run : token_runs) {
    int64_t done = 0;
    running_[static_cast<size_t>(run.sequence)] = 1;
    while (done < run.n) {
      const int64_t position = run.position + done, next = (position / interval_ + 1) * interval_,
                    n = std::min(run.n - done, next - position);
      const int slot = checkpoint_slot(position + n, interval_, n_slots_);
      pieces_.push_back({run.begin + done, run.begin + done + n, run.sequence, slot, position + n});
      done += n;
      if (slot > 0) kept_[place(run.sequence, slot)] = 0;  // half written from here on
    }
  }
}

void StateBook::end() {
  for (const Piece& piece : pieces_) {
    if (piece.slot > 0) kept_[place(piece.sequence, piece.slot)] = piece.position;
    running_[static_cast<size_t>(piece.sequence)] = 0;
  }
  pieces_.clear();
}

StateBook::Cut StateBook::cut_of(int64_t sequence, int64_t n_positions, int64_t n_held) const {
  n_positions = std::min(n_positions, n_held);
  if (n_elements_ == 0 || (n_positions == n_held && running_[static_cast<size_t>(sequence)] == 0))
    return {n_positions, kNone};
  Cut best{0, 0};
  for (int slot = 1; slot <= n_slots_; ++slot) {
    const int64_t position = kept_[place(sequence, slot)];
    if (position <= n_positions && position > best.n_positions) best = {position, slot};
  }
  return best;
}

StateBook::Cut StateBook::truncate(int64_t sequence, int64_t n_positions, int64_t n_held) {
  const Cut cut = cut_of(sequence, n_positions, n_held);
  if (n_elements_ == 0 || cut.slot == kNone) return cut;
  running_[static_cast<size_t>(sequence)] = 0;
  for (int slot = 1; slot <= n_slots_; ++slot) {
    int64_t& position = kept_[place(sequence, slot)];
    if (position > cut.n_positions) position = 0;
  }
  return cut;
}

StateBook::Cut StateBook::fork(int64_t from, int64_t n_positions, int64_t n_held, int64_t to) {
  const Cut cut = cut_of(from, n_positions, n_held);
  if (n_elements_ == 0) return cut;
  running_[static_cast<size_t>(to)] = 0;
  for (int slot = 1; slot <= n_slots_; ++slot) {
    const int64_t position = kept_[place(from, slot)];
    kept_[place(to, slot)] = position <= cut.n_positions ? position : 0;
  }
  return cut;
}

template <class T>
StateStore<T>::StateStore(std::span<const StateLayer> layers, const ExecutorOptions& options)
    : book_(layers, options), memory_(book_.bytes(1, sizeof(T)), "the states of the sequences and their checkpoints") {}

template <class T>
T* StateStore<T>::states_of(int64_t sequence, int slot) const noexcept {
  return static_cast<T*>(static_cast<void*>(memory_.data())) +
         (sequence * (book_.n_slots() + 1) + slot) * book_.n_elements();
}

template <class T>
void StateStore<T>::keep(int32_t state, const StateBook::Piece& piece, int64_t unit_begin,
                         int64_t unit_end) const noexcept {
  const StateLayer& layer = book_.layers()[static_cast<size_t>(state)];
  const int64_t first = book_.offset(state) + unit_begin * layer.unit_floats;
  std::copy_n(states_of(piece.sequence, 0) + first, (unit_end - unit_begin) * layer.unit_floats,
              states_of(piece.sequence, piece.slot) + first);
}

template <class T>
int64_t StateStore<T>::truncate(int64_t sequence, int64_t n_positions, int64_t n_held) {
  const StateBook::Cut cut = book_.truncate(sequence, n_positions, n_held);
  if (cut.slot == 0) {
    std::fill_n(states_of(sequence, 0), book_.n_elements(), T(0));
  } else if (cut.slot != kNone) {
    std::copy_n(states_of(sequence, cut.slot), book_.n_elements(), states_of(sequence, 0));
  }
  return cut.n_positions;
}

template <class T>
int64_t StateStore<T>::fork(int64_t from, int64_t n_positions, int64_t n_held, int64_t to) {
  if (from == to) return truncate(from, n_positions, n_held);
  const StateBook::Cut cut = book_.fork(from, n_positions, n_held, to);
  if (empty()) return cut.n_positions;
  if (cut.slot == 0) {
    std::fill_n(states_of(to, 0), book_.n_elements(), T(0));
  } else {
    std::copy_n(states_of(from, cut.slot == kNone ? 0 : cut.slot), book_.n_elements(), states_of(to, 0));
  }
  for (int slot = 1; slot <= book_.n_slots(); ++slot) {
    if (book_.is_kept(to, slot)) std::copy_n(states_of(from, slot), book_.n_elements(), states_of(to, slot));
  }
  return cut.n_positions;
}

template <class T>
void StateStore<T>::visit(int64_t sequence, const std::function<void(std::span<const std::byte>)>& sink) const {
  for (size_t i = 0; i < book_.layers().size(); ++i) sink(std::as_bytes(state(sequence, static_cast<int32_t>(i))));
}

template class StateStore<float>;
template class StateStore<double>;

}  // namespace assay::ops
