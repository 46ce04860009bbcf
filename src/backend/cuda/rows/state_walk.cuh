// How a warp goes through the tokens that a batch has of one sequence: in pieces that end where the sequence is
// interrupted or where a checkpoint lies (ops/state/state_store.h). All lanes of a warp call together. What is needed
// for it is read from the batch on the device, so that a recorded graph serves any sequences and positions.
//
//   tokens     0 1 2 3 4 5 6 7 8     walker 0: sequence 7: pieces 0-2, 3-4 (a checkpoint after 2), 8
//   sequence   7 7 7 7 7 2 2 2 7     walker 5: sequence 2: piece 5-7
//   walker     0         5           or, where sequences are fewer than tokens, walkers 7 and 2
#pragma once

#include "backend/cuda/rows/state_ops.h"
#include "backend/cuda/runtime/warp.cuh"
#include "ops/state/state.h"

namespace assay::backend::cuda {

// The first token of [begin, end) whose sequence is (is_same) or is not `sequence`; end where there is none.
__device__ inline int find_token(const int32_t* sequences, int begin, int end, int sequence, bool is_same) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int at = begin; at < end; at += 32) {
    const bool found = at + lane < end && (sequences[at + lane] == sequence) == is_same;
    const unsigned lanes = __ballot_sync(kWholeWarp, found);
    if (lanes != 0) return at + __ffs(static_cast<int>(lanes)) - 1;
  }
  return end;
}
__device__ inline int count_tokens(const int32_t* sequences, int begin, int end, int sequence) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int n = 0;
  for (int at = begin; at < end; at += 32)
    n += __popc(__ballot_sync(kWholeWarp, at + lane < end && sequences[at + lane] == sequence));
  return n;
}

struct StatePiece {
  int begin = 0, n = 0;  // tokens
  int slot = 0;          // that takes a copy of the state after them; 0: none
};

class StateWalk {
 public:
  __device__ StateWalk(const StateView& state, int walker) : state_(state) {
    const bool by_token = state.n_tokens <= state.n_sequences;
    sequence_ = by_token ? state.sequences[walker] : walker;
    first_ = find_token(state.sequences, 0, state.n_tokens, sequence_, true);
    if (by_token && first_ != walker) first_ = state.n_tokens;  // another walker's
    if (first_ == state.n_tokens) return;
    position_ = state.positions[first_];
    end_position_ = position_ + count_tokens(state.sequences, first_, state.n_tokens, sequence_);
  }
  __device__ bool has_tokens() const { return first_ < state_.n_tokens; }

  // Before the first token and after the last one; null before position 0, where a state is zero. May be the same.
  __device__ const float* from() const { return position_ == 0 ? nullptr : place(position_ % 2); }
  __device__ float* to() const { return place(end_position_ % 2); }
  __device__ float* checkpoint(int slot) const { return place(1 + slot); }

  // Calls visit(StatePiece) for all pieces in order.
  template <class Visit>
  __device__ void run(Visit&& visit) const {
    int position = position_;
    for (int token = first_; token < state_.n_tokens;) {
      const int end = find_token(state_.sequences, token + 1, state_.n_tokens, sequence_, false);
      while (token < end) {
        const int to_next = state_.interval - position % state_.interval;
        StatePiece piece;
        piece.begin = token, piece.n = min(end - token, to_next);
        token += piece.n, position += piece.n;
        piece.slot = ops::checkpoint_slot(position, state_.interval, state_.n_slots);
        visit(piece);
      }
      token = find_token(state_.sequences, end, state_.n_tokens, sequence_, true);
    }
  }

 private:
  __device__ float* place(int i) const {
    return state_.memory + sequence_ * state_.sequence_stride + i * state_.place_stride;
  }
  const StateView& state_;
  int sequence_ = 0, first_ = 0, position_ = 0, end_position_ = 0;
};

}  // namespace assay::backend::cuda
