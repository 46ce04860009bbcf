// See run_decode.h.
#include "backend/cuda/runtime/run_decode.h"

#include <array>
#include <utility>

#include "backend/cuda/attention/decode_attention.h"
#include "backend/cuda/attention/fast_attention.h"
#include "backend/cuda/decode/decode.h"
#include "backend/cuda/decode/fast_decode.h"
#include "backend/cuda/experts/expert_token.h"
#include "backend/cuda/experts/router.h"
#include "backend/cuda/runtime/run_group.h"
#include "backend/cuda/runtime/run_ops.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/gather.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;

const FusionGroup& member_at(const DeviceState& s, int32_t i) { return s.schedule.groups[static_cast<size_t>(i)]; }
template <class Record>
const Record& record_of(const DeviceState& s, int32_t op) {
  return s.plan.ops[static_cast<size_t>(op)].get<Record>();
}

DecodeSource source_of(const DeviceState& s, const DecodeGroup& group, ops::ValueId x, const Wanted& wanted) {
  DecodeSource source;
  source.d = static_cast<int32_t>(s.width(x));
  source.a = s.value(x);
  const ops::Gather* gather =
      group.gather_awaited != kNone && s.gathers_land ? &record_of<ops::Gather>(s, group.gather_awaited) : nullptr;
  const ShardSums sums = gather != nullptr ? s.landings.sums(*gather) : ShardSums{};
  if (gather != nullptr && group.of_own_columns) {
    source.d = static_cast<int32_t>(s.width(gather->x));
    source.a = s.value(gather->x);
  } else if (gather != nullptr && sums.n_shards == 0) {
    source.wait = s.landings.wait(*gather, s.round());
  }
  if (group.norm == kNone) return source;
  const NormTask task = norm_task(s, member_at(s, group.norm), wanted);
  source.a = task.a;
  source.b = task.b;
  source.pre_w = task.pre_w;
  source.pre_eps = task.pre_eps;
  source.w = task.w;
  source.eps = task.eps;
  source.pre_y = task.pre_y;
  source.sum = task.sum;
  source.y = task.y;
  if (sums.n_shards > 0) {
    if (source.a == s.value(gather->y)) source.a = source.b;
    source.b = nullptr;
    source.sums = sums;
  }
  if (group.is_added) source.a = task.sum, source.b = nullptr, source.sum = nullptr;
  return source;
}

void run_products(const DeviceState& s, const DecodeGroup& group, const Wanted& wanted, const Queue& queue) {
  const FusionGroup& linears = member_at(s, group.linears);
  std::array<LinearTask, kLinearsMax> tasks;
  size_t n = 0;
  for (const int32_t op : linears.ops) {
    const auto& linear = record_of<ops::Linear>(s, op);
    tasks[n] = linear_task(s, linear);
    tasks[n++].y = wanted(linear.y);
  }
  const auto& first = record_of<ops::Linear>(s, linears.ops.front());
  DecodeGate gate;
  if (group.gate != kNone) {
    const auto& r = record_of<ops::Gate>(s, member_at(s, group.gate).ops.front());
    gate = {s.value(r.y), r.activation};
    if (first.y != r.gate) std::swap(tasks[0], tasks[1]);
  }
  if (group.of_own_columns && s.gathers_land) {
    tasks[0] = {&s.weights.matrix(first.columns), nullptr, nullptr};
    gate.sums = s.landings.send_sums(record_of<ops::Gather>(s, group.gather_sent));
  } else if (group.gather_sent != kNone && !(group.keeps_row && s.gathers_land)) {
    const auto& gather = record_of<ops::Gather>(s, group.gather_sent);
    float* y = s.gathers_land ? s.value(gather.y) + gather.column : s.value(gather.x);
    (group.gate != kNone ? gate.y : tasks[0].y) = y;
    if (s.gathers_land) gate.send = s.landings.task(gather, s.round());
  }
  if (group.sum_made != kNone) {
    const auto& sum = record_of<ops::Add>(s, group.sum_made);
    gate.residual = s.value(sum.a == first.y ? sum.b : sum.a);
    gate.sum = s.value(sum.y);
  }
  decode_linears(group.row->kernel, source_of(s, group, first.x, wanted), std::span(tasks.data(), n), gate,
                 s.options.planes, queue);
}

void run_attention(const DeviceState& s, const DecodeGroup& group, const Wanted& wanted, const Queue& queue) {
  const AttentionTask task = attention_task(s, member_at(s, group.attention));
  const AttentionRow& row = s.kernels.attention(member_at(s, group.attention)).one_token.at(task.n_segments);
  if (row.kernel == AttentionKernel::fast_decode) {
    fast_decode_attention(task, heads_task(s, member_at(s, group.heads), wanted), queue);
    if (task.n_segments > 1) attention_merge(task, queue);
    return;
  }
  DecodeAttention attention;
  attention.heads = heads_task(s, member_at(s, group.heads), wanted);
  attention.y = task.y;
  attention.window = task.window;
  attention.scale = task.scale;
  attention.n_segments = task.n_segments;
  attention.partials = task.partials;
  attention.arrived = s.arrived.as<uint32_t>();
  attention.lets_early = !group.reader_is_narrow;
  if (group.gather_sent != kNone && s.gathers_land && !group.keeps_row) {
    const auto& gather = record_of<ops::Gather>(s, group.gather_sent);
    attention.y = s.value(gather.y) + gather.column;
    attention.send = s.landings.task(gather, s.round());
  }
  decode_attention(row.kernel, attention, queue);
}

void run_router(const DeviceState& s, const DecodeGroup& group, const Wanted& wanted, const Queue& queue) {
  const auto& product = record_of<ops::Linear>(s, member_at(s, group.linears).ops.front());
  const LinearTask linear = linear_task(s, product);
  RouterTask task;
  task.w = reinterpret_cast<const float*>(linear.w->parts.base[0]);
  task.bias = linear.bias;
  task.x = s.value(product.x);
  task.logits = wanted(product.y);
  task.cols = static_cast<int32_t>(linear.w->cols);
  task.route = route_task(s, record_of<ops::Route>(s, member_at(s, group.route).ops.front()));
  if (group.norm != kNone) {
    const FusionGroup& norm = member_at(s, group.norm);
    task.norm = norm_task(s, norm, wanted);
    if (group.makes_integers) task.norm.q = s.activations[static_cast<size_t>(norm.twin)];
  }
  if (task.route.n_rows > 0) router(task, queue);
}

// The product's own result only where somebody looks at it.
ExpertTask expert_task_of(const DeviceState& s, int32_t group, const Wanted& wanted) {
  const auto& product = record_of<ops::ExpertLinear>(s, member_at(s, group).ops.front());
  ExpertTask task = expert_task(s, product);
  task.y = wanted(product.y);
  return task;
}

void run_expert_gate(const DeviceState& s, const DecodeGroup& group, const Wanted& wanted, const Queue& queue) {
  const auto& gate = record_of<ops::Gate>(s, member_at(s, group.gate).ops.front());
  const FusionGroup& first = member_at(s, group.experts);
  ExpertGateTask task{expert_task_of(s, group.experts, wanted), expert_task_of(s, group.experts + 1, wanted),
                      gate.activation, s.value(gate.y)};
  if (record_of<ops::ExpertLinear>(s, first.ops.front()).y != gate.gate) std::swap(task.gate, task.up);
  if (task.gate.n_pairs > 0) expert_token_gate(task, s.activations[static_cast<size_t>(first.twin)], queue);
}

void run_expert_sum(const DeviceState& s, const DecodeGroup& group, const Wanted& wanted, const Queue& queue) {
  const auto& sum = record_of<ops::ExpertSum>(s, member_at(s, group.sum).ops.front());
  ExpertSumTask task{expert_task_of(s, group.experts, wanted), sum.weighted ? s.value(sum.routes) : nullptr,
                     s.value(sum.y)};
  task.down.routes_are_settled = true;  // by the kernel ahead, which is the block's first
  if (task.down.n_pairs > 0) expert_token_sum(task, s.options.planes, queue);
}

}  // namespace

void run_decode_group(const DeviceState& s, const DecodeGroup& group, bool observed, const Queue& queue) {
  const Wanted wanted{s, s.schedule.read_by_other_groups, observed};
  switch (group.kind) {
    case DecodeGroup::Kind::nothing: return;
    case DecodeGroup::Kind::attention: run_attention(s, group, wanted, queue); break;
    case DecodeGroup::Kind::alone: run_group(s, group.alone, wanted, queue); break;
    case DecodeGroup::Kind::routes: run_router(s, group, wanted, queue); break;
    case DecodeGroup::Kind::expert_gate: run_expert_gate(s, group, wanted, queue); break;
    case DecodeGroup::Kind::expert_sum: run_expert_sum(s, group, wanted, queue); break;
    case DecodeGroup::Kind::linears:
      if (s.n_rows(record_of<ops::Linear>(s, member_at(s, group.linears).ops.front()).y) > 0)
        run_products(s, group, wanted, queue);
      break;
  }
  if (group.gather_sent != kNone && !s.gathers_land) run_group(s, member_at(s, group.members.back()), wanted, queue);
}

}  // namespace assay::backend::cuda
