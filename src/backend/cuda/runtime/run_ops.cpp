// See run_ops.h.
#include "backend/cuda/runtime/run_ops.h"

#include <iterator>

#include "assay/error.h"
#include "backend/cuda/rows/plain_rows.h"
#include "backend/cuda/rows/state_ops.h"
#include "backend/cuda/runtime/device_state.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_position.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/gather.h"
#include "ops/linear/route.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/clamp.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;

const float* small_or_null(const DeviceState& s, ops::WeightId id) {
  return id == kNone ? nullptr : s.weights.small(id);
}
int64_t elements(const DeviceState& s, ops::ValueId id) { return s.n_rows(id) * s.width(id); }

void run(const DeviceState& s, const ops::Embed& r, const Queue& queue) {
  if (s.has_token_rows) return;
  embed(s.kernels.unpacker(r.table).kernel, s.weights.matrix(r.table), s.tokens(), s.n_tokens,
        static_cast<float>(r.scale), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::EmbedPosition& r, const Queue& queue) {
  embed_position(s.kernels.unpacker(r.table).kernel, s.weights.matrix(r.table), s.positions(), r.row, s.n_tokens,
                 s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::RmsNorm& r, const Queue& queue) {
  rms_norm(s.value(r.x), small_or_null(s, r.w), r.eps, r.d, s.n_rows(r.y) * (s.width(r.x) / r.d), s.value(r.y),
           queue.stream);
}
void run(const DeviceState& s, const ops::LayerNorm& r, const Queue& queue) {
  const int64_t runs = s.width(r.y) / r.d;
  layer_norm({s.value(r.x), small_or_null(s, r.w), small_or_null(s, r.bias), r.eps, r.d, s.n_rows(r.y) * runs,
              r.by_column ? runs : 1, s.value(r.y)},
             queue);
}
void run(const DeviceState& s, const ops::L2Norm& r, const Queue& queue) {
  l2_norm(s.value(r.x), r.eps, r.d, s.n_rows(r.y) * (s.width(r.y) / r.d), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::Rope& r, const Queue& queue) {
  const auto i = static_cast<size_t>(r.rope);
  rope(s.value(r.x), s.rope_device[i].as<const float>(), s.positions(), s.n_rows(r.y), shape_of(s, r), s.value(r.y),
       queue.stream);
}
void run(const DeviceState& s, const ops::KvStore& r, const Queue& queue) {
  kv_store(s.cache.layer(r.layer), s.value(r.k), r.v == kNone ? nullptr : s.value(r.v), s.positions(), s.sequences(),
           s.n_tokens, queue.stream);
}
void run(const DeviceState& s, const ops::Attention& r, const Queue& queue) {
  AnyAttentionTask task;
  task.cache = s.cache.layer(r.layer);
  task.q = s.value(r.q);
  task.y = s.value(r.y);
  task.sinks = small_or_null(s, r.sinks);
  task.n_heads = r.n_heads, task.window = r.window, task.chunk = r.chunk;
  task.causal = r.causal;
  task.scale = static_cast<float>(r.scale);
  task.softcap = static_cast<float>(r.softcap);
  task.tiles = s.tiles();
  task.n_tiles = s.n_tiles;
  task.sequences = s.sequences();
  task.n_tokens = s.n_tokens;
  task.tile_tokens = s.tokens_alone ? 1 : kTileTokens;
  attention_any(task, queue);
}
void run(const DeviceState& s, const ops::Add& r, const Queue& queue) {
  add(s.value(r.a), s.value(r.b), elements(s, r.y), s.value(r.y), queue.stream);
}
void run(const DeviceState& s, const ops::Gate& r, const Queue& queue) {
  gate_any(s.value(r.gate), s.value(r.up), r.activation, s.width(r.y) / s.width(r.gate), elements(s, r.y), s.value(r.y),
           queue);
}
void run(const DeviceState& s, const ops::ClampedGate& r, const Queue& queue) {
  clamped_gate(s.value(r.gate), s.value(r.up), static_cast<float>(r.alpha), static_cast<float>(r.limit),
               elements(s, r.y), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::Activate& r, const Queue& queue) {
  activate(s.value(r.x), r.activation, elements(s, r.y), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::Softcap& r, const Queue& queue) {
  softcap(s.value(r.x), static_cast<float>(r.cap), elements(s, r.y), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::Scale& r, const Queue& queue) {
  scale(s.value(r.x), static_cast<float>(r.factor), elements(s, r.y), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::Clamp& r, const Queue& queue) {
  clamp(s.value(r.x), static_cast<float>(r.limit), elements(s, r.y), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::AddColumns& r, const Queue& queue) {
  add_columns(s.value(r.x), s.weights.small(r.w), s.width(r.y), elements(s, r.y), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::ScaleColumns& r, const Queue& queue) {
  const int64_t n_factors = s.plan.weights[static_cast<size_t>(r.w)].view.shape.elements();
  scale_columns(s.value(r.x), s.weights.small(r.w), n_factors, s.width(r.y) / n_factors, elements(s, r.y), s.value(r.y),
                queue);
}
void run(const DeviceState& s, const ops::Slice& r, const Queue& queue) {
  copy_runs({s.value(r.x), s.width(r.x) / r.n_runs, r.first, s.value(r.y), s.width(r.y) / r.n_runs, 0,
             s.width(r.y) / r.n_runs, 1},
            s.n_rows(r.y) * r.n_runs, queue);
}
void run(const DeviceState& s, const ops::Join& r, const Queue& queue) {
  const int64_t of_a = s.width(r.a) / r.n_runs, of_y = s.width(r.y) / r.n_runs, of_b = of_y - of_a,
                n = s.n_rows(r.y) * r.n_runs;
  copy_runs({s.value(r.a), of_a, 0, s.value(r.y), of_y, 0, of_a, 1}, n, queue);
  copy_runs({s.value(r.b), of_b, 0, s.value(r.y), of_y, of_a, of_b, s.width(r.b) == of_b ? r.n_runs : 1}, n, queue);
}
void run(const DeviceState& s, const ops::SelectOutputs& r, const Queue& queue) {
  select_rows(s.value(r.x), s.selected(), static_cast<int64_t>(s.shape.selected.size()), s.width(r.x), s.value(r.y),
              queue.stream);
}
void run(const DeviceState& s, const ops::Route& r, const Queue& queue) { route(route_task(s, r), queue); }
void run(const DeviceState& s, const ops::ExpertScale& r, const Queue& queue) {
  expert_scale(s.value(r.x), s.value(r.routes), r.n_used, s.width(r.x), elements(s, r.y), s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::ExpertSum& r, const Queue& queue) {
  expert_sum(s.value(r.x), r.weighted ? s.value(r.routes) : nullptr, r.n_used, s.width(r.y), elements(s, r.y),
             s.value(r.y), queue);
}
void run(const DeviceState& s, const ops::CausalConv& r, const Queue& queue) {
  ConvTask task;
  task.state = s.state_view(r.state);
  task.x = s.value(r.x), task.w = s.weights.small(r.w), task.bias = small_or_null(s, r.bias), task.y = s.value(r.y);
  task.d = s.width(r.y);
  task.kernel = s.plan.weights[static_cast<size_t>(r.w)].view.shape.elements() / task.d;
  causal_conv(task, queue);
}
template <OpKernel kKernel>
void run_delta(const DeviceState& s, const ops::Op& op, const Queue& queue) {
  const auto& r = op.get<ops::DeltaRule>();
  DeltaTask task;
  task.state = s.state_view(r.state);
  task.q = s.value(r.q), task.k = s.value(r.k), task.v = s.value(r.v), task.y = s.value(r.y);
  task.decay = s.value(r.decay), task.strength = s.value(r.strength);
  task.n_heads = static_cast<int32_t>(r.n_heads), task.n_key_heads = static_cast<int32_t>(r.n_key_heads);
  task.d_k = static_cast<int32_t>(s.width(r.k) / r.n_key_heads),
  task.d_v = static_cast<int32_t>(s.width(r.v) / r.n_heads);
  task.tiled = r.tiled, task.decay_by_row = s.width(r.decay) != r.n_heads;
  delta_rule(kKernel, task, queue);
}
void run(const DeviceState& s, const ops::SelectiveScan& r, const Queue& queue) {
  ScanTask task;
  task.state = s.state_view(r.state);
  task.x = s.value(r.x), task.dt = s.value(r.dt), task.b = s.value(r.b), task.c = s.value(r.c), task.y = s.value(r.y);
  task.a = s.weights.small(r.a), task.d = small_or_null(s, r.d);
  task.n_heads = static_cast<int32_t>(r.n_heads), task.n_groups = static_cast<int32_t>(r.n_groups);
  task.head_dim = static_cast<int32_t>(s.width(r.x) / r.n_heads);
  task.d_state = static_cast<int32_t>(s.width(r.b) / r.n_groups);
  task.a_by_state = s.plan.weights[static_cast<size_t>(r.a)].view.shape.elements() != r.n_heads;
  selective_scan(task, queue);
}
void run(const DeviceState& s, const ops::Gather& r, const Queue& queue) {
  const int64_t n_rows = s.n_rows(r.y), own_width = s.width(r.x), width = s.width(r.y);
  if (n_rows == 0) return;
  if (s.place.peers == nullptr) throw Error(Errc::bad_request, "a shard of a model needs the others to run");
  if (!s.gathers_land) {
    return s.place.peers->copy_columns(s.place.i_shard, s.value(r.x), own_width, r.column, width, n_rows, s.value(r.y),
                                       queue.stream);
  }
  GatherTask task = s.landings.task(r, s.round());
  task.x = s.value(r.x);
  task.own_width = static_cast<int32_t>(own_width);
  task.width = static_cast<int32_t>(width);
  task.n_rows = static_cast<int32_t>(n_rows);
  gather_columns(task, true, queue);
}

template <class R>
void of_type(const DeviceState& s, const ops::Op& op, const Queue& queue) {
  run(s, op.get<R>(), queue);
}
constexpr void (*kStart[])(const DeviceState&, const ops::Op&, const Queue&) = {
    of_type<ops::Embed>,
    of_type<ops::EmbedPosition>,
    of_type<ops::RmsNorm>,
    of_type<ops::LayerNorm>,
    of_type<ops::L2Norm>,
    of_type<ops::Rope>,
    of_type<ops::KvStore>,
    of_type<ops::Attention>,
    of_type<ops::Add>,
    of_type<ops::Gate>,
    of_type<ops::ClampedGate>,
    of_type<ops::Activate>,
    of_type<ops::Softcap>,
    of_type<ops::Scale>,
    of_type<ops::Clamp>,
    of_type<ops::AddColumns>,
    of_type<ops::ScaleColumns>,
    of_type<ops::Slice>,
    of_type<ops::Join>,
    of_type<ops::SelectOutputs>,
    of_type<ops::Route>,
    of_type<ops::ExpertScale>,
    of_type<ops::ExpertSum>,
    of_type<ops::CausalConv>,
    run_delta<OpKernel::delta_walk>,
    run_delta<OpKernel::delta>,
    run_delta<OpKernel::delta_in_memory>,
    of_type<ops::SelectiveScan>,
    of_type<ops::Gather>};  // as OpKernel counts
static_assert(std::size(kStart) == kNOpsAlone);

// What the rows of the op's kernels count.
int64_t counted(const DeviceState& s, const ops::Op& op) {
  const auto* delta = op.as<ops::DeltaRule>();
  if (delta == nullptr) return s.n_tokens;
  const StateView state = s.state_view(delta->state);
  return state.n_tokens > state.n_parts ? state.n_parts : lower::kAnyTokens;
}

}  // namespace

RouteTask route_task(const DeviceState& s, const ops::Route& r) {
  RouteTask task;
  task.logits = s.value(r.logits);
  task.bias = small_or_null(s, r.bias);
  task.expert_scales = small_or_null(s, r.expert_scales);
  task.gating = r.gating;
  task.n_experts = static_cast<int32_t>(s.width(r.logits)), task.n_used = static_cast<int32_t>(r.n_used);
  task.n_groups = static_cast<int32_t>(r.n_groups), task.n_groups_used = static_cast<int32_t>(r.n_groups_used);
  task.group_by_best = r.group_by_best, task.normalise = r.normalise;
  task.scale = static_cast<float>(r.scale), task.least_sum = static_cast<float>(r.least_sum);
  task.near = static_cast<float>(r.near);
  task.n_rows = s.n_rows(r.y);
  task.y = s.value(r.y);
  return task;
}

void run_alone(const DeviceState& state, int32_t i_op, const Queue& queue) {
  const ops::Op& op = state.plan.ops[static_cast<size_t>(i_op)];
  kStart[static_cast<size_t>(state.kernels.alone(i_op).at(counted(state, op)).kernel)](state, op, queue);
}

RopeShape shape_of(const DeviceState& s, const ops::Rope& r) {
  const ops::RopeSpec& spec = s.plan.ropes[static_cast<size_t>(r.rope)];
  return {r.n_heads, r.head_dim, spec.dim, spec.interleaved};
}

}  // namespace assay::backend::cuda
