// The kernels of small batches as graphs: recorded once for each shape of a batch, then started whole. What differs
// from token to token (ids, positions, the length of the context) the kernels read from the device's memory. Where
// there are too many the one goes that was not run for longest.
#pragma once

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>

namespace assay::backend::cuda {

struct GraphKey {
  int64_t n_tokens = 0, n_outputs = 0, n_segments = 0, n_ranked = 0;
  bool allows = false;   // not all tokens of all its outputs
  bool keeps = false;    // its logits, for while the next run is under way
  bool follows = false;  // others of its kind, the batch being on the device before it starts
  int set = 0;           // of a shard: which of two sets of places its sums have
  auto operator<=>(const GraphKey&) const = default;
};

class Graphs {
 public:
  Graphs() = default;
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Runs what `queue_work` queues on the stream: directly the first time that the key is seen, from a graph afterwards,
  // which is what it returns. Of runs that follow one another the first is recorded at once: many more come.
  bool run(const GraphKey& key, cudaStream_t stream, const std::function<void(bool recorded)>& queue_work);
  // Makes the graph without running it.
  void record(const GraphKey& key, cudaStream_t stream, const std::function<void(bool recorded)>& queue_work);
  bool knows(const GraphKey& key) const;

  void clear() noexcept;

 private:
  struct Known {
    cudaGraphExec_t graph = nullptr;  // null: seen once
    uint64_t last_used = 0;
  };
  Known& used(const GraphKey& key);

  std::map<GraphKey, Known> graphs_;
  uint64_t clock_ = 0;
};

inline constexpr size_t kGraphsMax = 256;

}  // namespace assay::backend::cuda
