// See borrow.h.
#include "backend/cuda/runtime/borrow.h"

#include <algorithm>

#include "backend/cuda/runtime/device_state.h"
#include "ops/plan/op_values.h"
#include "ops/state/run_on_host.h"

namespace assay::backend::cuda {
namespace {

constexpr size_t kStagingAlignment = 64;
size_t aligned(size_t bytes) noexcept {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment;
}

// What the op reads, each value once, then what it writes.
std::vector<ops::ValueId> values_at(const ops::Op& op) {
  ops::OpValues of = ops::values_of(op);
  std::vector<ops::ValueId> ids = std::move(of.inputs);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  ids.push_back(of.output);
  return ids;
}

// The states of borrowed ops, in their places among all.
std::vector<ops::StateLayer> borrowed_states(const ops::Plan& plan, const Schedule& schedule) {
  std::vector<ops::StateLayer> layers(plan.states.size());
  for (const FusionGroup& group : schedule.groups) {
    if (group.kind != FusionGroup::Kind::borrowed) continue;
    const auto state = ops::state_of(plan.ops[static_cast<size_t>(group.ops.front())]);
    if (state != ops::kNone) layers[static_cast<size_t>(state)] = plan.states[static_cast<size_t>(state)];
  }
  return layers;
}

}  // namespace

Borrower::Borrower(const ops::Plan& plan, const ops::ExecutorOptions& options, const Schedule& schedule)
    : plan_(plan),
      is_borrowed_(plan.ops.size(), 0),
      states_(borrowed_states(plan, schedule), options),
      small_(plan),
      values_(plan.values.size(), nullptr) {
  size_t bytes = 0;
  for (const FusionGroup& group : schedule.groups) {
    if (group.kind != FusionGroup::Kind::borrowed) continue;
    any_ = true;
    is_borrowed_[static_cast<size_t>(group.ops.front())] = 1;
    const ops::Op& op = plan.ops[static_cast<size_t>(group.ops.front())];
    size_t of_op = 0;
    for (const ops::ValueId id : values_at(op)) {
      const ops::Value& value = plan.values[static_cast<size_t>(id)];
      const int64_t n_rows = value.domain == ops::RowDomain::outputs ? options.n_outputs_max : options.n_batch_max;
      of_op += aligned(static_cast<size_t>(n_rows * value.width) * sizeof(float));
    }
    bytes = std::max(bytes, of_op);
  }
  staging_ = PinnedBuffer(bytes, "the rows of ops that run on the host");
}

void Borrower::begin(const ops::Batch& batch, const ops::BatchShape& shape,
                     std::span<const ops::RopeTable> rope_tables) {
  rows_ = {&plan_, values_, small_.all(), rope_tables, batch.tokens, batch.positions, shape.selected};
}

void Borrower::run(const DeviceState& s, int32_t i_op) {
  const ops::Op& op = plan_.ops[static_cast<size_t>(i_op)];
  const std::vector<ops::ValueId> ids = values_at(op);
  const ops::ValueId y = ids.back();
  const int64_t n_rows = s.n_rows(y);
  if (n_rows == 0) return;
  std::byte* place = staging_.data();
  const auto bytes_of = [&](ops::ValueId id) {
    return static_cast<size_t>(s.n_rows(id) * s.width(id)) * sizeof(float);
  };
  for (const ops::ValueId id : ids) {
    values_[static_cast<size_t>(id)] = reinterpret_cast<float*>(place);
    place += aligned(bytes_of(id));
    if (id == y || bytes_of(id) == 0) continue;
    check(cudaMemcpyAsync(values_[static_cast<size_t>(id)], s.value(id), bytes_of(id), cudaMemcpyDeviceToHost,
                          s.stream.get()),
          "reading a value");
  }
  s.stream.wait();  // also for what was sent from this memory before
  ops::run_on_host(op, rows_, states_, n_rows);
  check(
      cudaMemcpyAsync(s.value(y), values_[static_cast<size_t>(y)], bytes_of(y), cudaMemcpyHostToDevice, s.stream.get()),
      "sending a value");
}

}  // namespace assay::backend::cuda
