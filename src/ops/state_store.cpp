// See state_store.h.
#include "ops/state_store.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "assay/error.h"

namespace assay::ops {

template <class T>
StateStore<T>::StateStore(const Plan& plan, const ExecutorOptions& options)
    : layers_(plan.states), interval_(std::max<int64_t>(1, options.checkpoint_interval)) {
  for (const StateLayer& layer : layers_) {
    offsets_.push_back(n_elements_);
    n_elements_ += (layer.n_floats() + 15) / 16 * 16;  // whole cache lines
  }
  if (n_elements_ == 0) return;
  const int64_t n_multiples = (options.n_ctx - 1) / interval_;
  n_slots_ = std::min<int>(kCheckpointsMax, static_cast<int>(std::bit_width(static_cast<uint64_t>(n_multiples))));
  const auto n_copies = static_cast<uint64_t>(options.n_sequences) * static_cast<uint64_t>(n_slots_ + 1);
  kept_.assign(n_copies, 0);
  running_.assign(static_cast<size_t>(options.n_sequences), 0);
  const auto copy_bytes = static_cast<uint64_t>(n_elements_) * sizeof(T);
  if (copy_bytes > std::numeric_limits<uint64_t>::max() / n_copies)
    throw Error(Errc::out_of_memory, "the states of all sequences need more than 64 bits can count");
  memory_ = base::AlignedBuffer(copy_bytes * n_copies, "the states of the sequences and their checkpoints");
  pieces_.reserve(static_cast<size_t>(options.n_batch_max + options.n_batch_max / interval_ + 1));
}

template <class T>
T* StateStore<T>::states_of(int64_t sequence, int slot) const noexcept {
  return static_cast<T*>(static_cast<void*>(memory_.data())) + (sequence * (n_slots_ + 1) + slot) * n_elements_;
}

template <class T>
int StateStore<T>::slot_of(int64_t position) const noexcept {
  if (n_slots_ == 0 || position % interval_ != 0) return 0;
  return std::min(n_slots_, 1 + std::countr_zero(static_cast<uint64_t>(position / interval_)));
}

template <class T>
void StateStore<T>::begin(std::span<const TokenRun> token_runs) {
  pieces_.clear();
  if (n_elements_ == 0) return;
  for (const TokenRun& run : token_runs) {
    int64_t done = 0;
    running_[static_cast<size_t>(run.sequence)] = 1;
    while (done < run.n) {
      const int64_t position = run.position + done, next = (position / interval_ + 1) * interval_,
                    n = std::min(run.n - done, next - position);
      pieces_.push_back({run.begin + done, run.begin + done + n, run.sequence, slot_of(position + n), position + n});
      done += n;
      if (pieces_.back().slot > 0) kept(run.sequence, pieces_.back().slot) = 0;  // half written from here on
    }
  }
}

template <class T>
void StateStore<T>::keep(int32_t state, const Piece& piece, int64_t unit_begin, int64_t unit_end) const noexcept {
  const StateLayer& layer = layers_[static_cast<size_t>(state)];
  const int64_t first = offsets_[static_cast<size_t>(state)] + unit_begin * layer.unit_floats;
  std::copy_n(states_of(piece.sequence, 0) + first, (unit_end - unit_begin) * layer.unit_floats,
              states_of(piece.sequence, piece.slot) + first);
}

template <class T>
void StateStore<T>::end() {
  for (const Piece& piece : pieces_) {
    if (piece.slot > 0) kept(piece.sequence, piece.slot) = piece.position;
    running_[static_cast<size_t>(piece.sequence)] = 0;
  }
  pieces_.clear();
}

template <class T>
int64_t StateStore<T>::truncate(int64_t sequence, int64_t n_positions, int64_t n_held) {
  n_positions = std::min(n_positions, n_held);
  if (n_elements_ == 0 || (n_positions == n_held && running_[static_cast<size_t>(sequence)] == 0)) return n_positions;
  running_[static_cast<size_t>(sequence)] = 0;
  int best = 0;
  int64_t n = 0;
  for (int slot = 1; slot <= n_slots_; ++slot) {
    int64_t& position = kept(sequence, slot);
    if (position > n_positions) position = 0;
    if (position > n) best = slot, n = position;
  }
  if (best == 0) {
    std::fill_n(states_of(sequence, 0), n_elements_, T(0));
  } else {
    std::copy_n(states_of(sequence, best), n_elements_, states_of(sequence, 0));
  }
  return n;
}

template <class T>
void StateStore<T>::copy(int64_t from, int64_t to) {
  if (n_elements_ == 0 || from == to) return;
  running_[static_cast<size_t>(to)] = running_[static_cast<size_t>(from)];
  for (int slot = 0; slot <= n_slots_; ++slot) {
    kept(to, slot) = kept(from, slot);
    if (slot == 0 || kept(from, slot) > 0) std::copy_n(states_of(from, slot), n_elements_, states_of(to, slot));
  }
}

template <class T>
void StateStore<T>::visit(int64_t sequence, const std::function<void(std::span<const std::byte>)>& sink) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    sink(std::as_bytes(std::span(states_of(sequence, 0) + offsets_[i], static_cast<size_t>(layers_[i].n_floats()))));
  }
}

template class StateStore<float>;
template class StateStore<double>;

}  // namespace assay::ops
