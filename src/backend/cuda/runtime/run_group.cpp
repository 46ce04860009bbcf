// See run_group.h.
#include "backend/cuda/runtime/run_group.h"

#include <algorithm>
#include <array>

#include "assay/error.h"
#include "backend/cuda/attention/fast_attention.h"
#include "backend/cuda/experts/expert_groups.h"
#include "backend/cuda/experts/expert_linear.h"
#include "backend/cuda/linear/float_skinny.h"
#include "backend/cuda/linear/launch_linear.h"
#include "backend/cuda/rows/row_kernels.h"
#include "backend/cuda/runtime/borrow.h"
#include "backend/cuda/runtime/run_fast.h"
#include "backend/cuda/runtime/run_ops.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;

template <class Record>
const Record& record_of(const DeviceState& s, int32_t op) {
  return s.plan.ops[static_cast<size_t>(op)].get<Record>();
}

class GroupLauncher {
 public:
  GroupLauncher(const DeviceState& state, const FusionGroup& group, const Wanted& wanted, const Queue& queue)
      : s_(state), group_(group), wanted_(wanted), queue_(queue) {}

  void run() const {
    switch (group_.kind) {
      case FusionGroup::Kind::op: return run_op(group_.ops.front());
      case FusionGroup::Kind::quantise: return run_quantise();
      case FusionGroup::Kind::norm: return run_norm();
      case FusionGroup::Kind::heads: return run_heads();
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
  void run_op(int32_t i_op) const {
    const auto* r = s_.plan.ops[static_cast<size_t>(i_op)].as<ops::Gate>();
    const tensor::DType dtype = r != nullptr && is_usual(s_.plan, *r) ? halves_for_next(r->y) : tensor::DType::F32;
    if (dtype == tensor::DType::F32) return run_alone(s_, i_op, queue_);
    const int64_t n = s_.n_rows(r->y) * s_.width(r->y);
    gate_to(dtype, s_.value(r->gate), s_.value(r->up), r->activation, n, wanted_.observed ? s_.value(r->y) : nullptr,
            s_.floats.view().x, queue_);
  }

  void run_experts() const {
    const auto& r = record<ops::ExpertLinear>(group_.ops.front());
    ExpertTask task = expert_task(s_, r);
    if (task.n_pairs == 0) return;
    if (group_.ops.size() == 2) return run_two_experts(task);
    const ExpertRange& range = s_.kernels.experts(group_.ops.front()).range_at(task.n_pairs / r.n_used);
    switch (range.row->kernel) {
      case ExpertKernel::group_tiles:
        return expert_linear_groups(task, integers(), range.row->columns, s_.by_expert.view(), range.made,
                                    s_.hopper.view(), queue_);
      case ExpertKernel::vectors:
        task.routes_are_settled = range.routes_are_settled;
        return expert_linear_gemv({&task, 1}, integers(), queue_);
      case ExpertKernel::any_format: return expert_linear_any(task, integers(), queue_);
      case ExpertKernel::floats: return run_float_experts(task, r);
    }
  }
  // Of the same routes, for one token, both as vectors (schedule/decode_groups.h).
  void run_two_experts(const ExpertTask& first) const {
    const ExpertTask both[] = {first, expert_task(s_, record<ops::ExpertLinear>(group_.ops.back()))};
    expert_linear_gemv(both, integers(), queue_);
  }

  void run_float_experts(const ExpertTask& task, const ops::ExpertLinear& r) const {
    const Matrix& w = *task.w;
    if (!s_.decodes(w)) return expert_linear_float(task, w.dtype, w.parts.base[0], 0, r.n_experts, queue_);
    // Whole experts decoded at a time, and the pairs that go to them.
    const int64_t rows_each = w.rows / r.n_experts;
    const auto n_at_once = std::max<int64_t>(
        1, static_cast<int64_t>(s_.panel.size()) / (rows_each * w.cols * static_cast<int64_t>(sizeof(float))));
    for (int64_t expert = 0; expert < r.n_experts; expert += n_at_once) {
      const int64_t n = std::min(n_at_once, r.n_experts - expert);
      decode_rows(s_.kernels.unpacker(r.w).kernel, w, expert * rows_each, n * rows_each, s_.panel.as<float>(),
                  queue_.stream);
      expert_linear_float(task, tensor::DType::F32, s_.panel.data(), expert, n, queue_);
    }
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
    norm_rows(s_.kernels.group(group_).at(task.n_rows).kernel, task, queue_);
  }

  // The plain ones show nobody the keys on their way.
  void run_heads() const {
    const OpRow& row = s_.kernels.group(group_).at(s_.n_tokens);
    heads(wanted_.observed ? OpKernel::heads : row.kernel, heads_task(s_, group_, wanted_), queue_);
  }

  void run_gate() const {
    const auto& r = record<ops::Gate>(group_.ops.front());
    gate_rows(s_.value(r.gate), s_.value(r.up), r.activation, s_.n_rows(r.y), wanted_(r.y), integers(), queue_);
  }

  void run_attention() const {
    AttentionTask task = attention_task(s_, group_);
    const AttentionChoice& choice = s_.kernels.attention(group_);
    if (!s_.tokens_alone) {
      AttentionTask alone = task;
      alone.n_tiles = s_.n_tiles_alone;
      if (alone.n_tiles > 0) {
        launch_attention(choice.alone_at(alone.n_tiles, alone.n_segments), alone, queue_);
        attention_merge(alone, queue_);
      }
      task.tiles += alone.n_tiles, task.n_tiles -= alone.n_tiles;
      launch_attention(*choice.tiles, task, queue_);
      if (group_.twin != kNone) quantise_rows(task.y, s_.n_tokens, integers(), queue_);
      return;
    }
    launch_attention(choice.alone_at(task.n_tiles, task.n_segments), task, queue_);
    if (group_.twin == kNone) return attention_merge(task, queue_);  // in decode the readers may make the integers
    if (choice.merge.at(task.n_segments).kernel == AttentionKernel::merge_integers) {
      task.y = wanted_(record<ops::Attention>(group_.ops.front()).y);
      return merge_rows(task, integers(), queue_);
    }
    attention_merge(task, queue_);
    quantise_rows(task.y, s_.n_tokens, integers(), queue_);
  }

  void run_linears() const {
    if (group_.twin == kNone) return run_float_linears();
    std::array<LinearTask, kLinearsMax> tasks;
    size_t n = 0;
    for (const int32_t op : group_.ops) {
      tasks[n++] = linear_task(s_, record<ops::Linear>(op));
    }
    const int64_t n_tokens = s_.n_rows(record<ops::Linear>(group_.ops.front()).y);
    if (n_tokens == 0) return;
    const std::span<const LinearTask> all(tasks.data(), n);
    const LinearRange& range = s_.kernels.linears(group_).at(n_tokens);
    const Launching on{s_.card, s_.hopper.view(), queue_};
    if (range.together != nullptr)
      return launch_linears(*range.together, range.forms[0], all, integers(), n_tokens, on);
    for (size_t i = 0; i < n; ++i)
      launch_linears(*range.each[i], range.forms[i], all.subspan(i, 1), integers(), n_tokens, on);
  }

  // Mode fast, many tokens: the type in whose precision x is left for fast tiles; else F32. Decode of one token has
  // groups of its own.
  tensor::DType type_of(const KernelPlan::Halves& halves, ops::ValueId x) const {
    if (s_.n_tokens == 1 || halves.x != x || row_of_floats(halves.reader).kernel != FloatKernel::fast_tiles)
      return tensor::DType::F32;
    return halves.type;
  }
  tensor::DType halves_for_next(ops::ValueId x) const { return type_of(s_.kernels.halves_left(group_), x); }
  bool halves_are_made(ops::ValueId x) const {
    return type_of(s_.kernels.halves_found(group_), x) != tensor::DType::F32;
  }
  // Of a product that reads floats, for the batch; of none of its rows, as of one.
  const FloatRow& row_of_floats(int32_t op) const {
    return s_.kernels.floats(op).at(s_.n_rows(record<ops::Linear>(op).y));
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
      decode_rows(s_.kernels.unpacker(r.w).kernel, w, row, n, s_.panel.as<float>(), queue_.stream);
      visit(FloatRows{tensor::DType::F32, s_.panel.data(), n, bias == nullptr ? nullptr : bias + row, y + row, w.rows});
    }
  }

  void run_float_linears() const {
    const int64_t n = s_.n_rows(record<ops::Linear>(group_.ops.front()).y);
    if (n == 0) return;
    std::vector<int32_t> exact;  // ops
    for (const int32_t op : group_.ops) {
      if (!is_fast(row_of_floats(op).kernel)) exact.push_back(op);
    }
    if (exact.size() < group_.ops.size()) {
      for (const tensor::DType type : {tensor::DType::F16, tensor::DType::BF16}) run_fast_linears(type, n);
    }
    if (!exact.empty()) run_exact_linears(exact, n);
  }

  void run_fast_linears(tensor::DType type, int64_t n) const {
    std::array<FastLinear, kLinearsMax> linears;
    size_t n_linears = 0;
    for (const int32_t op : group_.ops) {
      const auto& linear = record<ops::Linear>(op);
      const LinearTask task = linear_task(s_, linear);
      const FloatRow& row = row_of_floats(op);
      if (is_fast(row.kernel) && fast_type(task.w->dtype) == type)
        linears[n_linears++] = {task, &row, s_.kernels.unpacker(linear.w).kernel};
    }
    if (n_linears == 0) return;
    const ops::ValueId x = record<ops::Linear>(group_.ops.front()).x;
    FastRun run{type, s_.value(x), s_.width(x), n};
    run.in_tiles =
        linears[0].row->kernel == FloatKernel::fast_tiles;  // as all are: it goes by the number of tokens and the card
    run.halves_are_made = run.in_tiles && halves_are_made(x);
    cuda::run_fast_linears(s_, run, std::span(linears.data(), n_linears), queue_);
  }

  // All read the same rows, and so run as tiles together or each by its row.
  void run_exact_linears(std::span<const int32_t> exact, int64_t n) const {
    const ops::ValueId x_id = record<ops::Linear>(exact.front()).x;
    const float* x = s_.value(x_id);
    const int64_t cols = s_.width(x_id);
    const FloatRow& first = row_of_floats(exact.front());
    if (first.kernel == FloatKernel::tiles) {
      FloatTiles tiles(s_.floats.view(), first.form.tokens, cols, x, n, queue_);
      for (const int32_t op : exact)
        visit_rows(record<ops::Linear>(op), [&](const FloatRows& rows) { tiles.add(rows); });
      return tiles.finish();
    }
    for (const int32_t op : exact) {
      const FloatRow& row = row_of_floats(op);
      visit_rows(record<ops::Linear>(op), [&](const FloatRows& rows) {
        row.kernel == FloatKernel::skinny ? linear_float_skinny(rows, row.form, cols, x, n, queue_)
                                          : linear_float(rows, cols, x, n, queue_.stream);
      });
    }
  }

  const DeviceState& s_;
  const FusionGroup& group_;
  const Wanted& wanted_;
  const Queue& queue_;
};

}  // namespace

void run_group(const DeviceState& state, const FusionGroup& group, const Wanted& wanted, const Queue& queue) {
  GroupLauncher(state, group, wanted, queue).run();
}

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
  task.n_pairs = r.n_pairs(s.n_rows(r.y));
  task.d_in = r.d_in, task.d_out = r.d_out;
  task.rows_per_expert = r.rows_per_expert == 0 ? r.d_out : r.rows_per_expert, task.first_row = r.first_row;
  task.n_used = static_cast<int32_t>(r.n_used);
  task.is_wide = r.has_own_inputs(s.plan.values[static_cast<size_t>(r.x)]);
  return task;
}

LinearTask linear_task(const DeviceState& s, const ops::Linear& r) {
  return {&s.weights.matrix(r.w), r.bias == kNone ? nullptr : s.weights.small(r.bias), s.value(r.y)};
}

}  // namespace assay::backend::cuda
