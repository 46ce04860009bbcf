// Commands of whole runs: recorded once for each shape of a batch and replayed for all that have it. What differs
// between such batches lies in the device's copy of the batch. A recording ends where an op is borrowed, where somebody
// looks at values, and where much work has come together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "backend/vulkan/runtime/device_state.h"
#include "backend/vulkan/runtime/kernels.h"
#include "backend/vulkan/runtime/one_token.h"

namespace assay::backend::vulkan {

// Up to where the host has something to do.
struct Part {
  Recording commands;
  int32_t borrowed = ops::kNone;  // the op that the host runs then
  bool ends_group = false;        // where somebody looks
  std::vector<int32_t> seen;      // ops that are announced, or timed, then
};
struct Program {
  int64_t n_tokens = 0, n_outputs = 0, n_segments = 0;
  std::vector<Part> parts;
  uint64_t last_used = 0;
};

using Chosen = std::vector<std::vector<const Kernel*>>;  // per op; none: it is borrowed

class Programs {
 public:
  // All must outlive it. record_end: records what follows the last group.
  Programs(const lower::Lowering& lowering, const Chosen& chosen, std::span<const OneStep> one_steps,
           DeviceState& state, std::function<void()> record_end)
      : lowering_(lowering), chosen_(chosen), one_steps_(one_steps), state_(state), record_end_(std::move(record_end)) {
  }

  // Of the batch that the state has begun: recorded where there is none yet, in place of the one that was longest
  // unused. Valid until the next call.
  const Program& find(int64_t n_outputs);
  Program record(int64_t n_outputs, bool ends_with_groups) const;  // ends_with_groups: a part for each

 private:
  void cut(Program& program, int32_t borrowed) const;
  // Records what begins at group g. The last group of it.
  int32_t record_step(int32_t g, Program& made) const;
  void record_ops(const lower::FusionGroup& group, Program& made) const;
  bool is_alike(int32_t a, int32_t b) const;
  const Kernel* kernel_for(int32_t op) const;

  const lower::Lowering& lowering_;
  const Chosen& chosen_;
  const std::span<const OneStep> one_steps_;
  DeviceState& state_;
  std::function<void()> record_end_;
  std::vector<Program> kept_;
  uint64_t n_runs_ = 0;
};

}  // namespace assay::backend::vulkan
