// See borrow.h.
#include "backend/cuda/runtime/borrow.h"

#include <algorithm>

#include "backend/cuda/runtime/device_state.h"
#include "base/round_up.h"
#include "lower/placement.h"
#include "ops/plan/cached_run.h"
#include "ops/plan/op_values.h"
#include "ops/state/run_on_host.h"

namespace assay::backend::cuda {
namespace {

constexpr size_t kStagingAlignment = 64;
size_t aligned(size_t bytes) noexcept { return base::round_up(bytes, kStagingAlignment); }

// What the op reads, each value once, then what it writes.
std::vector<ops::ValueId> values_at(const ops::Op& op) {
  ops::OpValues of = ops::values_of(op);
  std::vector<ops::ValueId> ids = std::move(of.inputs);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  ids.push_back(of.output);
  return ids;
}

// Per op of the plan: 1 where no kernel serves it.
std::vector<uint8_t> borrowed_ops(const ops::Plan& plan, const Schedule& schedule) {
  std::vector<uint8_t> is_borrowed(plan.ops.size(), 0);
  for (const FusionGroup& group : schedule.groups) {
    if (group.kind == FusionGroup::Kind::borrowed) is_borrowed[static_cast<size_t>(group.ops.front())] = 1;
  }
  return is_borrowed;
}

}  // namespace

Borrower::Borrower(const ops::Plan& plan, const ops::ExecutorOptions& options, const Schedule& schedule)
    : plan_(plan), is_borrowed_(borrowed_ops(plan, schedule)),
      states_(ops::states_of(plan, [this](int32_t op) { return is_borrowed(op); }), options), small_(plan),
      values_(plan.values.size(), nullptr) {
  size_t bytes = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    if (is_borrowed_[i] == 0) continue;
    any_ = true;
    size_t of_op = 0;
    for (const ops::ValueId id : values_at(plan.ops[i])) {
      const ops::Value& value = plan.values[static_cast<size_t>(id)];
      of_op += aligned(static_cast<size_t>(lower::rows_max(plan, id, options) * value.width) * sizeof(float));
    }
    bytes = std::max(bytes, of_op);
  }
  staging_ = PinnedBuffer(bytes, "the rows of ops that run on the host");
}

void Borrower::begin(const ops::Batch& batch, const ops::BatchShape& shape,
                     std::span<const ops::RopeTable> rope_tables) {
  rows_ = {&plan_, values_, small_.all(), rope_tables, batch.tokens, batch.positions, shape.selected};
  shape_ = &shape;
}

void Borrower::run_cached(const DeviceState& s, const ops::Op& op) {
  const int32_t layer = ops::cache_layer_of(op);
  const CacheView& view = s.cache.layer(layer);
  for (const ops::TokenRun& run : shape_->token_runs) {
    const int64_t n = shape_->n_positions[static_cast<size_t>(run.sequence)];
    const auto fetch = [&](bool keys) {
      const ops::CacheType type = keys ? view.type_k : view.type_v;
      const int64_t dim = keys ? view.head_dim : view.v_dim;
      std::vector<float> rows(static_cast<size_t>(n * view.n_kv_heads * dim));
      float* to = rows.data();
      s.cache.visit_rows(layer, keys, run.sequence, n, [&](std::span<const std::byte> row) {
        ops::cache_decode_ref(type, row.data(), dim, to);
        to += dim;
      });
      return rows;
    };
    const std::vector<float> keys = fetch(true);
    const std::vector<float> values = view.values_in_keys ? std::vector<float>() : fetch(false);
    const int64_t k_stride = view.n_kv_heads * view.head_dim;
    std::vector<float> scratch(static_cast<size_t>(n));
    std::vector<int32_t> order(static_cast<size_t>(n));
    const ops::CachedRun<float> at{n,
                                   keys.data(),
                                   k_stride,
                                   view.values_in_keys ? keys.data() : values.data(),
                                   view.values_in_keys ? k_stride : view.n_kv_heads * view.v_dim,
                                   scratch.data(),
                                   order.data()};
    op.record.run(rows_, at, run.begin, run.begin + run.n);
  }
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
  op.record.role() == ops::Role::cached ? run_cached(s, op) : ops::run_on_host(op, rows_, states_, n_rows);
  check(
      cudaMemcpyAsync(s.value(y), values_[static_cast<size_t>(y)], bytes_of(y), cudaMemcpyHostToDevice, s.stream.get()),
      "sending a value");
}

}  // namespace assay::backend::cuda
