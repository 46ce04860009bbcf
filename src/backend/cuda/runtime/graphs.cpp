// See graphs.h.
#include "backend/cuda/runtime/graphs.h"

#include "backend/cuda/runtime/device_memory.h"

namespace assay::backend::cuda {
namespace {

constexpr size_t kGraphsMax = 256;

// Ends a recording that an error left open, so that the stream can be used again.
struct Recording {
  explicit Recording(cudaStream_t s) : stream(s) { check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording a graph"); }
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
  for (const auto& [key, graph] : graphs_) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
  graphs_.clear();
}

bool Graphs::run(const GraphKey& key, cudaStream_t stream, const std::function<void(bool recorded)>& queue_work) {
  if (!graphs_.contains(key) && !key.follows) {
    if (graphs_.size() >= kGraphsMax) clear();
    queue_work(false);
    graphs_.emplace(key, nullptr);
    return false;
  }
  record(key, stream, queue_work);
  check(cudaGraphLaunch(graphs_.at(key), stream), "starting a graph");
  return true;
}

void Graphs::record(const GraphKey& key, cudaStream_t stream, const std::function<void(bool recorded)>& queue_work) {
  if (knows(key)) return;
  if (graphs_.size() >= kGraphsMax) clear();
  Recording recording(stream);
  queue_work(true);
  recording.end();
  check(cudaGraphInstantiate(&graphs_[key], recording.graph, 0), "making a graph");
}

bool Graphs::knows(const GraphKey& key) const {
  const auto known = graphs_.find(key);
  return known != graphs_.end() && known->second != nullptr;
}

}  // namespace assay::backend::cuda
