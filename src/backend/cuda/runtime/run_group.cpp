// See run_group.h.
#include "backend/cuda/runtime/run_group.h"

#include <algorithm>
#include <array>

#include "assay/error.h"

#include "backend/cuda/runtime/borrow.h"
#include "backend/cuda/experts/expert_groups.h"
#include "backend/cuda/experts/expert_linear.h"
#include "backend/cuda/attention/fast_attention.h"
#include "backend/cuda/linear/float_skinny.h"
#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/run_fast.h"
#include "backend/cuda/runtime/run_ops.h"
#include "ops/rows/add.h"
#include "ops/attention/attention.h"
#include "ops/linear/expert_linear.h"
#include "ops/rows/gate.h"
#include "ops/attention/kv_store.h"
#include "ops/linear/linear.h"
#include "ops/rows/rms_norm.h"
#include "ops/attention/rope.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;
constexpr int64_t kBatchTokensMin = 2;
constexpr int64_t kSegmentsByElement = 8;  // up to here a thread an element merges segments as fast as a block a head
constexpr int64_t kGemvTokensMax = 8;  // from here on the weights are unpacked once for many tokens

template <class Record>
const Record& record_of(const DeviceState& s, int32_t op) {
  return s.plan.ops[static_cast<size_t>(op)].get<Record>();
}

// Whether x is a gate's activation whose two products by the same routes expert_linear_gemv ran.
bool routes_are_settled(const DeviceState& s, const ops::ExpertLinear& r, const quant::Activations& x) {
  const auto made_by = [&s](ops::ValueId value) {
    const int32_t op = s.schedule.links.producer(value);
    return op == kNone ? nullptr : &s.plan.ops[static_cast<size_t>(op)];
  };
  const ops::Op* op = made_by(r.x);
  const auto* gate = op == nullptr ? nullptr : op->as<ops::Gate>();
  if (gate == nullptr) return false;
  for (const ops::ValueId part : {gate->gate, gate->up}) {
    op = made_by(part);
    const auto* product = op == nullptr ? nullptr : op->as<ops::ExpertLinear>();
    if (product == nullptr || product->routes != r.routes) return false;
    const ExpertTask task = expert_task(s, *product);
    if (task.w->parts.n < 2 || s.decodes(*task.w) || groups_experts(task, x, s.by_expert.view())) return false;
  }
  return true;
}

class GroupLauncher {
 public:
  GroupLauncher(const DeviceState& state, const FusionGroup& group, const Wanted& wanted, const Queue& queue) : s_(state), group_(group), wanted_(wanted), queue_(queue) {}

  void run() const {
    switch (group_.kind) {
      case FusionGroup::Kind::op: return run_op(s_.plan.ops[static_cast<size_t>(group_.ops.front())]);
      case FusionGroup::Kind::quantise: return run_quantise();
      case FusionGroup::Kind::norm: return run_norm();
      case FusionGroup::Kind::heads: return heads(heads_task(s_, group_, wanted_), queue_);
      case FusionGroup::Kind::gate: return run_gate();
      case FusionGroup::Kind::attention: return run_attention();
      case FusionGroup::Kind::linears: return run_linears();
      case FusionGroup::Kind::experts: return run_experts();
      case FusionGroup::Kind::borrowed: return s_.borrower->run(s_, group_.ops.front());
    }
  }

 private:
  template <class Record>
  const Record& record(int32_t op) const {
    return record_of<Record>(s_, op);
  }
  void run_op(const ops::Op& op) const {
    const auto* r = op.as<ops::Gate>();
    const tensor::DType dtype = r != nullptr && is_usual(s_.plan, *r) ? halves_for_next(r->y) : tensor::DType::F32;
    if (dtype == tensor::DType::F32) return run_alone(s_, op, queue_);
    const int64_t n = s_.n_rows(r->y) * s_.width(r->y);
    gate_to(dtype, s_.value(r->gate), s_.value(r->up), r->activation, n, wanted_.observed ? s_.value(r->y) : nullptr, s_.floats.view().x, queue_);
  }

  void run_experts() const {
    const auto& r = record<ops::ExpertLinear>(group_.ops.front());
    ExpertTask task = expert_task(s_, r);
    if (task.n_pairs == 0) return;
    if (group_.ops.size() == 2) {
      const ExpertTask both[] = {task, expert_task(s_, record<ops::ExpertLinear>(group_.ops.back()))};
      return expert_linear(both, integers(), queue_);
    }
    if (group_.twin != kNone) {
      const bool grouped = groups_experts(task, integers(), s_.by_expert.view());
      if (grouped && expert_linear_groups(task, integers(), s_.by_expert.view(), experts_made(task, r), s_.hopper.view(), queue_)) return;
      task.routes_are_settled = routes_are_settled(s_, r, integers());
      return expert_linear({&task, 1}, integers(), queue_);
    }
    const Matrix& w = *task.w;
    if (!s_.decodes(w)) return expert_linear_float(task, w.dtype, w.parts.base[0], 0, r.n_experts, queue_);
    // Whole experts decoded at a time, and the pairs that go to them.
    const int64_t rows_each = w.rows / r.n_experts;
    const auto n_at_once = std::max<int64_t>(1, static_cast<int64_t>(s_.panel.size()) / (rows_each * w.cols * static_cast<int64_t>(sizeof(float))));
    for (int64_t expert = 0; expert < r.n_experts; expert += n_at_once) {
      const int64_t n = std::min(n_at_once, r.n_experts - expert);
      decode_rows(w, expert * rows_each, n * rows_each, s_.panel.as<float>(), queue_.stream);
      expert_linear_float(task, tensor::DType::F32, s_.panel.data(), expert, n, queue_);
    }
  }

  // What the last product by experts ahead of this one has left in the scratch memory.
  ExpertsMade experts_made(const ExpertTask& task, const ops::ExpertLinear& r) const {
    for (const FusionGroup* group = &group_; group != s_.schedule.groups.data();) {
      --group;
      if (group->kind != FusionGroup::Kind::experts || group->twin == kNone) continue;
      const auto& before = record<ops::ExpertLinear>(group->ops.front());
      const ExpertTask ahead = expert_task(s_, before);
      const quant::Activations& x = s_.activations[static_cast<size_t>(group->twin)];
      if (!groups_experts(ahead, x, s_.by_expert.view())) continue;
      const bool same = before.routes == r.routes && before.n_experts == r.n_experts && ahead.n_pairs == task.n_pairs &&
                        expert_tile_tokens(ahead, x) == expert_tile_tokens(task, integers());
      return {same, same && group->twin == group_.twin && before.d_in == r.d_in};
    }
    return {};
  }

  const quant::Activations& integers() const { return s_.activations[static_cast<size_t>(group_.twin)]; }

  void run_quantise() const {
    const ops::ValueId x = s_.schedule.twins.list[static_cast<size_t>(group_.twin)].x;
    quantise_rows(s_.value(x), s_.n_rows(x), integers(), queue_);
  }

  void run_norm() const {
    NormTask task = norm_task(s_, group_, wanted_);
    if (group_.twin != kNone) task.q = integers();
    if (const tensor::DType dtype = halves_for_next(record<ops::RmsNorm>(group_.norm).y); dtype != tensor::DType::F32) {
      task.halves = reinterpret_cast<uint16_t*>(s_.floats.view().x);
      task.is_bf16 = dtype == tensor::DType::BF16;
    }
    norm_rows(task, queue_);
  }

  void run_gate() const {
    const auto& r = record<ops::Gate>(group_.ops.front());
    gate_rows(s_.value(r.gate), s_.value(r.up), r.activation, s_.n_rows(r.y), wanted_(r.y), integers(), queue_);
  }

  void run_attention() const {
    AttentionTask task = attention_task(s_, group_);
    const bool fast = s_.options.fast && fast_attention_serves(task.cache.head_dim, task.cache.type_k, task.cache.type_v);
    if (!s_.tokens_alone) {
      AttentionTask alone = task;
      alone.n_tiles = s_.n_tiles_alone;
      if (alone.n_tiles > 0) {
        fast ? fast_attention_split(alone, queue_) : attention_split(alone, queue_);
        attention_merge(alone, queue_);
      }
      task.tiles += alone.n_tiles, task.n_tiles -= alone.n_tiles;
      fast ? fast_attention_tiles(task, queue_) : attention_tiles(task, queue_);
      if (group_.twin != kNone) quantise_rows(task.y, s_.n_tokens, integers(), queue_);
      return;
    }
    fast ? fast_attention_split(task, queue_) : attention_split(task, queue_);
    if (group_.twin != kNone && task.n_segments > kSegmentsByElement) {
      attention_merge(task, queue_);
      quantise_rows(task.y, s_.n_tokens, integers(), queue_);
    } else if (group_.twin != kNone) {
      task.y = wanted_(record<ops::Attention>(group_.ops.front()).y);
      merge_rows(task, integers(), queue_);
    } else {
      attention_merge(task, queue_);
    }
  }

  void run_linears() const {
    if (group_.twin == kNone) return run_float_linears();
    std::array<LinearTask, kLinearsMax> tasks;
    size_t n = 0;
    for (const int32_t op : group_.ops) {
      tasks[n++] = linear_task(s_, record<ops::Linear>(op));
    }
    const int64_t n_tokens = s_.n_rows(record<ops::Linear>(group_.ops.front()).y);
    const std::span<const LinearTask> all(tasks.data(), n);
    const auto run = [&](std::span<const LinearTask> some) {
      if (n_tokens >= kBatchTokensMin && linear_batch(some, integers(), n_tokens, s_.hopper.view(), queue_)) return true;
      if (n_tokens <= kGemvTokensMax) return linear_gemv(some, integers(), n_tokens, queue_);
      return linear_mma(some, integers(), n_tokens, s_.hopper.view(), queue_);
    };
    if (run(all)) return;
    for (const LinearTask& task : all) {
      if (run(std::span(&task, 1))) continue;
      linear_any_format(*task.w, integers(), n_tokens, task.bias, task.y, queue_.stream);
    }
  }

  // Mode fast, many tokens: where the group after `group` multiplies only fast matrices in one type by value x, that type, in whose precision
  // `group` then leaves x for it; else F32.
  tensor::DType halves_from(const FusionGroup& group, ops::ValueId x) const {
    if (!s_.options.fast || s_.n_tokens == 1) return tensor::DType::F32;  // decode of one token has groups of its own
    const auto i = static_cast<size_t>(&group - s_.schedule.groups.data());
    if (i + 1 >= s_.schedule.groups.size()) return tensor::DType::F32;
    const FusionGroup& next = s_.schedule.groups[i + 1];
    if (next.kind != FusionGroup::Kind::linears || next.twin != kNone) return tensor::DType::F32;
    const auto& first = record<ops::Linear>(next.ops.front());
    const tensor::DType type = fast_type(s_.weights.matrix(first.w).dtype);
    const auto alike = [&](int32_t op) {
      const Matrix& w = s_.weights.matrix(record<ops::Linear>(op).w);
      return s_.is_fast(w) && fast_type(w.dtype) == type;
    };
    const bool all = first.x == x && runs_fast_tiles(s_.n_rows(first.y)) && std::all_of(next.ops.begin(), next.ops.end(), alike);
    return all ? type : tensor::DType::F32;
  }
  tensor::DType halves_for_next(ops::ValueId x) const { return halves_from(group_, x); }
  // Whether the group before has left the rounded x.
  bool halves_are_made(ops::ValueId x) const {
    if (&group_ == s_.schedule.groups.data() || s_.n_tokens == 1) return false;
    const FusionGroup& before = *(&group_ - 1);
    const auto* gate = before.kind == FusionGroup::Kind::op ? s_.plan.ops[static_cast<size_t>(before.ops.front())].as<ops::Gate>() : nullptr;
    if (gate != nullptr && !is_usual(s_.plan, *gate)) return false;
    const bool makes = gate != nullptr ? gate->y == x : before.kind == FusionGroup::Kind::norm && record<ops::RmsNorm>(before.norm).y == x;
    return makes && halves_from(before, x) != tensor::DType::F32;
  }
  bool runs_fast_tiles(int64_t n) const {
    return n > kFastSkinnyTokensMax && s_.hopper.view().n_processors > 0 && s_.floats.view().x != nullptr;
  }

  // Calls visit with the matrix as floats, part by part where it must first be decoded.
  template <class Visit>
  void visit_rows(const ops::Linear& r, Visit&& visit) const {
    const auto [matrix, bias, y] = linear_task(s_, r);
    const Matrix& w = *matrix;
    if (!s_.decodes(w)) return visit(FloatRows{w.dtype, w.parts.base[0], w.rows, bias, y, w.rows});
    const auto panel_rows = static_cast<int64_t>(s_.panel.size() / (static_cast<size_t>(w.cols) * sizeof(float)));
    for (int64_t row = 0; row < w.rows; row += panel_rows) {
      const int64_t n = std::min(panel_rows, w.rows - row);
      decode_rows(w, row, n, s_.panel.as<float>(), queue_.stream);
      visit(FloatRows{tensor::DType::F32, s_.panel.data(), n, bias == nullptr ? nullptr : bias + row, y + row, w.rows});
    }
  }

  void run_float_linears() const {
    const int64_t n = s_.n_rows(record<ops::Linear>(group_.ops.front()).y);
    if (n == 0) return;
    std::vector<ops::Linear> exact;
    for (const int32_t op : group_.ops) {
      const auto& linear = record<ops::Linear>(op);
      if (!s_.is_fast(s_.weights.matrix(linear.w))) exact.push_back(linear);
    }
    if (exact.size() < group_.ops.size()) {
      for (const tensor::DType type : {tensor::DType::F16, tensor::DType::BF16}) run_fast_linears(type, n);
    }
    if (!exact.empty()) run_exact_linears(exact, n);
  }

  void run_fast_linears(tensor::DType type, int64_t n) const {
    std::array<LinearTask, kLinearsMax> tasks;
    size_t n_tasks = 0;
    for (const int32_t op : group_.ops) {
      const LinearTask task = linear_task(s_, record<ops::Linear>(op));
      if (s_.is_fast(*task.w) && fast_type(task.w->dtype) == type) tasks[n_tasks++] = task;
    }
    if (n_tasks == 0) return;
    const ops::ValueId x = record<ops::Linear>(group_.ops.front()).x;
    FastRun run{type, s_.value(x), s_.width(x), n};
    run.in_tiles = runs_fast_tiles(n);
    run.halves_are_made = run.in_tiles && halves_are_made(x);
    cuda::run_fast_linears(s_, run, std::span(tasks.data(), n_tasks), queue_);
  }

  void run_exact_linears(std::span<const ops::Linear> linears, int64_t n) const {
    const float* x = s_.value(linears.front().x);
    const int64_t cols = s_.width(linears.front().x);
    if (n > kFloatSkinnyTokensMax && float_tiles_serve(cols) && s_.floats.view().n_w > 0) {
      FloatTiles tiles(s_.floats.view(), cols, x, n, queue_);
      for (const ops::Linear& linear : linears) visit_rows(linear, [&](const FloatRows& rows) { tiles.add(rows); });
      return tiles.finish();
    }
    for (const ops::Linear& linear : linears) {
      visit_rows(linear, [&](const FloatRows& rows) {
        n > 1 && float_skinny_serves(cols) ? linear_float_skinny(rows, cols, x, n, queue_) : linear_float(rows, cols, x, n, queue_.stream);
      });
    }
  }

  const DeviceState& s_;
  const FusionGroup& group_;
  const Wanted& wanted_;
  const Queue& queue_;
};

}  // namespace

void run_group(const DeviceState& state, const FusionGroup& group, const Wanted& wanted, const Queue& queue) { GroupLauncher(state, group, wanted, queue).run(); }

NormTask norm_task(const DeviceState& s, const FusionGroup& group, const Wanted& wanted) {
  const auto& norm = record_of<ops::RmsNorm>(s, group.norm);
  NormTask task;
  task.w = s.weights.small(norm.w);
  task.eps = norm.eps;
  task.d = norm.d;
  task.n_rows = s.n_rows(norm.y);
  task.y = wanted(norm.y);
  task.a = s.value(norm.x);
  if (group.add == kNone) return task;
  const auto& sum = record_of<ops::Add>(s, group.add);
  task.a = s.value(sum.a);
  task.b = s.value(sum.b);
  task.sum = s.value(sum.y);
  if (group.pre_norm == kNone) return task;
  const auto& pre = record_of<ops::RmsNorm>(s, group.pre_norm);
  if (pre.y == sum.a) task.a = s.value(sum.b);
  task.b = s.value(pre.x);
  task.pre_w = s.weights.small(pre.w);
  task.pre_eps = pre.eps;
  task.pre_y = wanted(pre.y);
  return task;
}

HeadsTask heads_task(const DeviceState& s, const FusionGroup& group, const Wanted& wanted) {
  const auto& q = record_of<ops::Rope>(s, group.q_rope);
  const auto& k = record_of<ops::Rope>(s, group.k_rope);
  const auto& store = record_of<ops::KvStore>(s, group.store);
  HeadsTask task;
  task.cache = s.cache.layer(store.layer);
  task.q = s.value(q.x);
  task.k = s.value(k.x);
  task.v = s.value(store.v);
  const auto norm_before = [&](int32_t op, auto& x, auto& w, auto& eps, auto& y) {
    if (op == kNone) return;
    const auto& norm = record_of<ops::RmsNorm>(s, op);
    x = s.value(norm.x);
    w = s.weights.small(norm.w);
    eps = norm.eps;
    y = wanted(norm.y);
  };
  norm_before(group.q_norm, task.q, task.q_norm, task.q_eps, task.q_normed);
  norm_before(group.k_norm, task.k, task.k_norm, task.k_eps, task.k_normed);
  task.n_tokens = s.n_tokens;
  task.n_heads = q.n_heads;
  task.rope = shape_of(s, q);
  task.table = s.rope_device[static_cast<size_t>(q.rope)].as<const float>();
  task.positions = s.positions();
  task.sequences = s.sequences();
  task.q_rotated = wanted(q.y);
  task.k_rotated = wanted(k.y);
  return task;
}

AttentionTask attention_task(const DeviceState& s, const FusionGroup& group) {
  const auto& r = record_of<ops::Attention>(s, group.ops.front());
  AttentionTask task;
  task.cache = s.cache.layer(r.layer);
  task.q = s.value(r.q);
  task.y = s.value(r.y);
  task.n_heads = r.n_heads;
  task.window = r.window;
  task.scale = static_cast<float>(r.scale);
  task.tiles = s.tiles();
  task.n_tiles = s.n_tiles;
  task.partials = s.partials.as<float>();
  task.n_segments = r.window > 0 ? std::min(s.n_segments, r.window / ops::kAttentionSegment + 2) : s.n_segments;
  return task;
}

ExpertTask expert_task(const DeviceState& s, const ops::ExpertLinear& r) {
  ExpertTask task;
  task.w = &s.weights.matrix(r.w);
  if (r.bias != kNone) task.bias = s.weights.small(r.bias);
  if (r.routes != kNone) task.routes = s.value(r.routes);
  task.x = s.value(r.x);
  task.y = s.value(r.y);
  task.n_pairs = s.n_rows(r.y) * r.n_used;
  task.d_in = r.d_in, task.d_out = r.d_out;
  task.rows_per_expert = r.rows_per_expert == 0 ? r.d_out : r.rows_per_expert, task.first_row = r.first_row;
  task.n_used = static_cast<int32_t>(r.n_used);
  task.is_wide = s.width(r.x) != r.d_in;
  return task;
}

LinearTask linear_task(const DeviceState& s, const ops::Linear& r) {
  return {&s.weights.matrix(r.w), r.bias == kNone ? nullptr : s.weights.small(r.bias), s.value(r.y)};
}

}  // namespace assay::backend::cuda
