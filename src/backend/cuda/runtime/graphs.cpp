// See graphs.h.
#include "backend/cuda/runtime/graphs.h"

#include <algorithm>

#include "backend/cuda/runtime/device_memory.h"

namespace assay::backend::cuda {
namespace {

// Ends a recording that an error left open, so that the stream can be used again.
struct Recording {
  explicit Recording(cudaStream_t s) : stream(s) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a graph");
  }
  ~Recording() {
    if (open) cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  void end() {
    open = false;
    check(cudaStreamEndCapture(stream, &graph), "recording a graph");
  }
  cudaStream_t stream;
  cudaGraph_t graph = nullptr;
  bool open = true;
};

}  // namespace

Graphs::~Graphs() { clear(); }

void Graphs::clear() noexcept {
  for (const auto& [key, known] : graphs_) {
    if (known.graph != nullptr) cudaGraphExecDestroy(known.graph);
  }
  graphs_.clear();
}

Graphs::Known& Graphs::used(const GraphKey& key) {
  if (graphs_.size() >= kGraphsMax && !graphs_.contains(key)) {
    const auto oldest = std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
      return a.second.last_used < b.second.last_used;
    });
    if (oldest->second.graph != nullptr) cudaGraphExecDestroy(oldest->second.graph);  // once a run of it has ended
    graphs_.erase(oldest);
  }
  Known& known = graphs_[key];
  known.last_used = ++clock_;
  return known;
}

bool Graphs::run(const GraphKey& key, cudaStream_t stream, const std::function<void(bool recorded)>& queue_work) {
  if (!graphs_.contains(key) && !key.follows) {
    queue_work(false);
    used(key);
    return false;
  }
  record(key, stream, queue_work);
  check(cudaGraphLaunch(used(key).graph, stream), "starting a graph");
  return true;
}

void Graphs::record(const GraphKey& key, cudaStream_t stream, const std::function<void(bool recorded)>& queue_work) {
  if (knows(key)) return;
  Recording recording(stream);
  queue_work(true);
  recording.end();
  check(cudaGraphInstantiate(&used(key).graph, recording.graph, 0), "making a graph");
}

bool Graphs::knows(const GraphKey& key) const {
  const auto known = graphs_.find(key);
  return known != graphs_.end() && known->second.graph != nullptr;
}

}  // namespace assay::backend::cuda
