// What ops with kernels here keep of the sequences (ops/state/state.h), on the device, with checkpoints as
// ops/state/state_store.h has them:
//
//   sequence 0                                                            sequence 1
//   [ after an even number | after an odd | slot 1 | .. | slot n ]        [ ..          each: the states of all ops
//
// A run reads the state after as many positions as there are before it and writes the one after its last: a run of one
// token leaves what it began with, so that the next one may begin before it is asked for. Kernels write checkpoints.
// Nothing is cleared: before position 0 they take zeros.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/rows/state_ops.h"
#include "backend/cuda/runtime/device_memory.h"
#include "ops/state/state_store.h"

namespace assay::backend::cuda {

class DeviceStates {
 public:
  // layers: of the plan; those that are not kept here have no units. Error(out_of_memory) with need and have.
  DeviceStates(std::span<const ops::StateLayer> layers, const ops::ExecutorOptions& options);

  // Without the batch.
  StateView view(int32_t state) const noexcept;
  bool has(int32_t state) const noexcept { return book_.layers()[static_cast<size_t>(state)].n_floats() > 0; }
  bool empty() const noexcept { return book_.n_elements() == 0; }
  size_t bytes() const noexcept { return memory_.size(); }

  void begin(std::span<const ops::TokenRun> token_runs) { book_.begin(token_runs); }
  void end() { book_.end(); }
  // Whether a run that ends after that many positions of a sequence writes a checkpoint.
  bool is_checkpoint(int64_t n_positions) const noexcept {
    return ops::checkpoint_slot(n_positions, book_.interval(), book_.n_slots()) > 0;
  }
  // As StateStore::truncate; the copy is queued on the stream.
  int64_t truncate(int64_t sequence, int64_t n_positions, int64_t n_held, cudaStream_t stream);
  // As StateStore has them; the copies are queued on the stream.
  int64_t n_usable(int64_t sequence, int64_t n_positions, int64_t n_held) const {
    return book_.cut_of(sequence, n_positions, n_held).n_positions;
  }
  void fork(int64_t from, int64_t n_positions, int64_t n_held, int64_t to, cudaStream_t stream);
  // Of a sequence of so many positions, once the stream has ended.
  std::vector<float> read(int64_t sequence, int32_t state, int64_t n_positions) const;

 private:
  float* place(int64_t sequence, int64_t i) const noexcept {
    return memory_.as<float>() + (sequence * n_places() + i) * book_.n_elements();
  }
  int64_t n_places() const noexcept { return 2 + book_.n_slots(); }
  void copy(const float* from, float* to, const char* doing, cudaStream_t stream) const;

  ops::StateBook book_;
  int32_t n_sequences_ = 0;
  DeviceBuffer memory_;
};

}  // namespace assay::backend::cuda
