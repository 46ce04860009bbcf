// Where an executor keeps the states of a plan (ops/state/state.h), beside its KV cache: per sequence the states after
// its last token, and checkpoints of them. A KV cache is cut by forgetting rows; a state has forgotten the rows itself.
// So copies of all states are kept at fixed positions, the multiples of an interval, and what is cut goes back to the
// last of them at or before the cut; the tokens from there on are run again (engine/executors/replay_executor.h).
//
//   position     0    256   512   768   1024  1280  ..     interval 256
//   slot               0     1     0      2     0          of the power of two in position / interval: each slot keeps
//   the last position it was given
//
// So of the last positions all multiples are kept, of older ones fewer and fewer: who cuts off m tokens runs about m
// again at most, or from 0, with a number of copies that grows as the logarithm of the context and ends at
// kCheckpointsMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "ops/plan/batch_shape.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "ops/state/state.h"

namespace assay::ops {

inline constexpr int kCheckpointsMax = 5;  // of a sequence

// Where in memory the states of each sequence and their checkpoints are, and of which positions they are; the memory is
// a store's own.
class StateBook {
 public:
  // layers: of a plan; those that are kept elsewhere have no units.
  StateBook(std::span<const StateLayer> layers, const ExecutorOptions& options);

  // Tokens of the batch up to where a checkpoint lies, and which slot takes it; 0: none.
  struct Piece {
    int64_t begin = 0, end = 0, sequence = 0;
    int slot = 0;
    int64_t position = 0;  // after its last token
  };
  void begin(std::span<const TokenRun> token_runs);
  void end();
  std::span<const Piece> pieces() const noexcept { return pieces_; }

  // What a cut leaves of a sequence, and the slot whose copy becomes its states; 0: they are zero; kNone: they stay.
  struct Cut {
    int64_t n_positions = 0;
    int32_t slot = kNone;
  };
  Cut truncate(int64_t sequence, int64_t n_positions, int64_t n_held);
  // What a cut to n_positions would leave.
  Cut cut_of(int64_t sequence, int64_t n_positions, int64_t n_held) const;
  // to becomes what a cut of from would leave.
  Cut fork(int64_t from, int64_t n_positions, int64_t n_held, int64_t to);

  bool is_kept(int64_t sequence, int slot) const noexcept { return kept_[place(sequence, slot)] > 0; }
  std::span<const StateLayer> layers() const noexcept { return layers_; }
  int64_t offset(int32_t state) const noexcept { return offsets_[static_cast<size_t>(state)]; }
  int64_t n_elements() const noexcept { return n_elements_; }  // of all states of a sequence
  int64_t interval() const noexcept { return interval_; }
  int n_slots() const noexcept { return n_slots_; }
  // Of the states of all sequences with n_present places for the present of each. Error(out_of_memory) beyond 64 bits.
  size_t bytes(int n_present, size_t element_bytes) const;

 private:
  size_t place(int64_t sequence, int slot) const noexcept {
    return static_cast<size_t>(sequence * (n_slots_ + 1) + slot);
  }

  std::vector<StateLayer> layers_;
  std::vector<int64_t> offsets_;  // of each state from the first, in elements
  int64_t n_elements_ = 0;
  int64_t interval_ = 0;
  int n_slots_ = 0;
  std::vector<uint8_t> running_;  // per sequence: a run of it has begun and not ended
  std::vector<int64_t> kept_;     // per sequence and slot: the position of its checkpoint; 0: none
  std::vector<Piece> pieces_;
};

// The states in the host's memory. T: float, or double for the oracle.
template <class T>
class StateStore {
 public:
  // Error(out_of_memory) where they do not fit. Memory is taken where it is touched.
  StateStore(const Plan& plan, const ExecutorOptions& options) : StateStore(plan.states, options) {}
  StateStore(std::span<const StateLayer> layers, const ExecutorOptions& options);

  // A run: begin(), then run() of every op with its units in any division, then end(). Where a run fails in between,
  // truncate() must take its sequences back before they are run again: also to where they were their states have to
  // come from a checkpoint.
  void begin(std::span<const TokenRun> token_runs) { book_.begin(token_runs); }
  // Calls run(StateRun) for the tokens of the batch in order, of every sequence from its own state, and keeps copies
  // where checkpoints lie.
  template <class Run>
  void run(int32_t state, int64_t unit_begin, int64_t unit_end, Run&& run) const {
    for (const StateBook::Piece& piece : book_.pieces()) {
      run(StateRun<T>{piece.begin, piece.end, states_of(piece.sequence, 0) + book_.offset(state)});
      if (piece.slot > 0) keep(state, piece, unit_begin, unit_end);
    }
  }
  void end() { book_.end(); }

  // Forgets what came after n_positions of the n_held that the sequence has; how many it has then: n_positions, or
  // those of a checkpoint before it.
  int64_t truncate(int64_t sequence, int64_t n_positions, int64_t n_held);
  // How many positions truncate() or fork() would leave.
  int64_t n_usable(int64_t sequence, int64_t n_positions, int64_t n_held) const {
    return book_.cut_of(sequence, n_positions, n_held).n_positions;
  }
  // to becomes what a cut of from to n_positions would leave, with its checkpoints; how many positions that are.
  int64_t fork(int64_t from, int64_t n_positions, int64_t n_held, int64_t to);
  bool empty() const noexcept { return book_.n_elements() == 0; }
  size_t bytes() const noexcept { return memory_.size(); }
  // One state of the plan, as it is after the sequence's last token.
  std::span<const T> state(int64_t sequence, int32_t i) const noexcept {
    return {states_of(sequence, 0) + book_.offset(i),
            static_cast<size_t>(book_.layers()[static_cast<size_t>(i)].n_floats())};
  }
  // State by state, those of the plan in order.
  void visit(int64_t sequence, const std::function<void(std::span<const std::byte>)>& sink) const;

 private:
  T* states_of(int64_t sequence, int slot) const noexcept;
  void keep(int32_t state, const StateBook::Piece& piece, int64_t unit_begin, int64_t unit_end) const noexcept;

  StateBook book_;
  mutable base::AlignedBuffer memory_;  // [sequence][1 + n_slots][n_elements]; the first is the present
};

}  // namespace assay::ops
