// See graphs.h.
#include "backend/cuda/graphs.h"

#include "backend/cuda/device_memory.h"

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
  auto known = graphs_.find(key);
  if (known == graphs_.end()) {
    if (graphs_.size() >= kGraphsMax) clear();
    if (!key.follows) {
      queue_work(false);
      graphs_.emplace(key, nullptr);
      return false;
    }
    known = graphs_.emplace(key, nullptr).first;
  }
  if (known->second == nullptr) {
    Recording recording(stream);
    queue_work(true);
    recording.end();
    check(cudaGraphInstantiate(&known->second, recording.graph, 0), "making a graph");
  }
  check(cudaGraphLaunch(known->second, stream), "starting a graph");
  return true;
}

}  // namespace assay::backend::cuda
