// See device_states.h.
#include "backend/cuda/runtime/device_states.h"

#include <algorithm>
#include <limits>
#include <string>

namespace assay::backend::cuda {

DeviceStates::DeviceStates(std::span<const ops::StateLayer> layers, const ops::ExecutorOptions& options)
    : book_(layers, options), n_sequences_(options.n_sequences),
      memory_(book_.bytes(2, sizeof(float)), "the states of " + std::to_string(options.n_sequences) +
                                                 " sequences and " + std::to_string(book_.n_slots()) +
                                                 " checkpoints of each") {}

StateView DeviceStates::view(int32_t state) const noexcept {
  StateView view;
  view.memory = memory_.as<float>() + book_.offset(state);
  view.sequence_stride = n_places() * book_.n_elements();
  view.place_stride = book_.n_elements();
  view.interval = static_cast<int32_t>(std::min<int64_t>(book_.interval(), std::numeric_limits<int32_t>::max()));
  view.n_slots = book_.n_slots();
  view.n_sequences = n_sequences_;
  return view;
}

int64_t DeviceStates::truncate(int64_t sequence, int64_t n_positions, int64_t n_held, cudaStream_t stream) {
  const ops::StateBook::Cut cut = book_.truncate(sequence, n_positions, n_held);
  if (cut.slot > 0) {  // else they stay, or are zero
    copy(place(sequence, 1 + cut.slot), place(sequence, cut.n_positions % 2), "going back to a checkpoint", stream);
  }
  return cut.n_positions;
}

void DeviceStates::fork(int64_t from, int64_t n_positions, int64_t n_held, int64_t to, cudaStream_t stream) {
  constexpr const char* kDoing = "copying states";
  const ops::StateBook::Cut cut = book_.fork(from, n_positions, n_held, to);
  if (empty()) return;
  const int64_t present = cut.n_positions % 2;
  if (cut.slot != 0) copy(place(from, cut.slot > 0 ? 1 + cut.slot : present), place(to, present), kDoing, stream);
  for (int slot = 1; slot <= book_.n_slots(); ++slot) {
    if (book_.is_kept(to, slot)) copy(place(from, 1 + slot), place(to, 1 + slot), kDoing, stream);
  }
}

void DeviceStates::copy(const float* from, float* to, const char* doing, cudaStream_t stream) const {
  const size_t bytes = static_cast<size_t>(book_.n_elements()) * sizeof(float);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), doing);
}

std::vector<float> DeviceStates::read(int64_t sequence, int32_t state, int64_t n_positions) const {
  std::vector<float> values(static_cast<size_t>(book_.layers()[static_cast<size_t>(state)].n_floats()));
  check(cudaMemcpy(values.data(), place(sequence, n_positions % 2) + book_.offset(state), values.size() * sizeof(float),
                   cudaMemcpyDeviceToHost),
        "reading a state");
  return values;
}

}  // namespace assay::backend::cuda
