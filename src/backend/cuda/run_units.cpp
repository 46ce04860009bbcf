// See run_units.h.
#include "backend/cuda/run_units.h"

#include <algorithm>
#include <array>

#include "backend/cuda/fused.h"
#include "backend/cuda/linear.h"
#include "backend/cuda/row_kernels.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;
constexpr int64_t kSmallTilesTokensMax = 512;
constexpr int64_t kGemvTokensMax = 8;  // from here on the weights are unpacked once for many tokens

class Runner {
 public:
  Runner(const DeviceState& state, const Unit& unit, bool observed, const Queue& queue) : s_(state), unit_(unit), observed_(observed), queue_(queue) {}

  void run() const {
    switch (unit_.kind) {
      case Unit::Kind::op: return run_op(s_.plan.ops[static_cast<size_t>(unit_.ops.front())]);
      case Unit::Kind::quantise: return run_quantise();
      case Unit::Kind::norm: return run_norm();
      case Unit::Kind::heads: return run_heads();
      case Unit::Kind::gate: return run_gate();
      case Unit::Kind::attention: return run_attention();
      case Unit::Kind::linears: return run_linears();
    }
  }

  void operator()(const ops::Embed& r) const {
    embed(s_.weights.matrix(r.table), s_.tokens(), s_.n_tokens, static_cast<float>(r.scale), s_.value(r.y), queue_.stream);
  }
  void operator()(const ops::RmsNorm& r) const {
    rms_norm(s_.value(r.x), s_.weights.small(r.w), r.eps, r.d, s_.n_rows(r.y) * (s_.width(r.x) / r.d), s_.value(r.y), queue_.stream);
  }
  void operator()(const ops::Rope& r) const {
    const auto i = static_cast<size_t>(r.rope);
    rope(s_.value(r.x), s_.rope_device[i].as<const float>(), s_.positions(), s_.n_rows(r.y), shape_of(r), s_.value(r.y), queue_.stream);
  }
  void operator()(const ops::KvStore& r) const {
    kv_store(s_.cache.layer(r.layer), s_.value(r.k), s_.value(r.v), s_.positions(), s_.sequences(), s_.n_tokens, queue_.stream);
  }
  void operator()(const ops::Add& r) const {
    add(s_.value(r.a), s_.value(r.b), s_.n_rows(r.y) * s_.width(r.y), s_.value(r.y), queue_.stream);
  }
  void operator()(const ops::Gate& r) const {
    gate(s_.value(r.gate), s_.value(r.up), r.activation, s_.n_rows(r.y) * s_.width(r.y), s_.value(r.y), queue_.stream);
  }
  void operator()(const ops::SelectOutputs& r) const {
    select_rows(s_.value(r.x), s_.selected(), static_cast<int64_t>(s_.shape.selected.size()), s_.width(r.x), s_.value(r.y), queue_.stream);
  }
  void operator()(const ops::Linear&) const {}     // always units of their own kinds
  void operator()(const ops::Attention&) const {}

 private:
  template <class Record>
  const Record& record(int32_t op) const {
    return std::get<Record>(s_.plan.ops[static_cast<size_t>(op)].record);
  }
  void run_op(const ops::Op& op) const { std::visit(*this, op.record); }

  // Where a value goes: nowhere, if nobody looks.
  float* wanted(ops::ValueId id) const { return observed_ || s_.schedule.read_outside[static_cast<size_t>(id)] ? s_.value(id) : nullptr; }
  const quant::Activations& integers() const { return s_.activations[static_cast<size_t>(unit_.quantised)]; }

  RopeShape shape_of(const ops::Rope& r) const {
    const ops::RopeSpec& spec = s_.plan.ropes[static_cast<size_t>(r.rope)];
    return {r.n_heads, r.head_dim, spec.dim, spec.interleaved};
  }

  void run_quantise() const {
    const ops::ValueId x = s_.schedule.quantised[static_cast<size_t>(unit_.quantised)].x;
    quantise_rows(s_.value(x), s_.n_rows(x), integers(), queue_.stream);
  }

  void run_norm() const {
    const auto& norm = record<ops::RmsNorm>(unit_.norm);
    NormTask task;
    task.w = s_.weights.small(norm.w);
    task.eps = norm.eps;
    task.d = norm.d;
    task.n_rows = s_.n_rows(norm.y);
    task.y = wanted(norm.y);
    task.a = s_.value(norm.x);
    if (unit_.quantised != kNone) task.q = integers();
    if (unit_.add != kNone) {
      const auto& sum = record<ops::Add>(unit_.add);
      task.a = s_.value(sum.a);
      task.b = s_.value(sum.b);
      task.sum = s_.value(sum.y);
      if (unit_.pre_norm != kNone) {
        const auto& pre = record<ops::RmsNorm>(unit_.pre_norm);
        if (pre.y == sum.a) task.a = s_.value(sum.b);
        task.b = s_.value(pre.x);
        task.pre_w = s_.weights.small(pre.w);
        task.pre_eps = pre.eps;
        task.pre_y = wanted(pre.y);
      }
    }
    norm_rows(task, queue_);
  }

  void run_heads() const {
    const auto& q = record<ops::Rope>(unit_.q_rope);
    const auto& k = record<ops::Rope>(unit_.k_rope);
    const auto& store = record<ops::KvStore>(unit_.store);
    HeadsTask task;
    task.cache = s_.cache.layer(store.layer);
    task.q = s_.value(q.x);
    task.k = s_.value(k.x);
    task.v = s_.value(store.v);
    if (unit_.q_norm != kNone) {
      const auto& norm = record<ops::RmsNorm>(unit_.q_norm);
      task.q = s_.value(norm.x);
      task.q_norm = s_.weights.small(norm.w);
      task.q_eps = norm.eps;
      task.q_normed = wanted(norm.y);
    }
    if (unit_.k_norm != kNone) {
      const auto& norm = record<ops::RmsNorm>(unit_.k_norm);
      task.k = s_.value(norm.x);
      task.k_norm = s_.weights.small(norm.w);
      task.k_eps = norm.eps;
      task.k_normed = wanted(norm.y);
    }
    task.n_tokens = s_.n_tokens;
    task.n_heads = q.n_heads;
    task.rope = shape_of(q);
    task.table = s_.rope_device[static_cast<size_t>(q.rope)].as<const float>();
    task.positions = s_.positions();
    task.sequences = s_.sequences();
    task.q_rotated = s_.value(q.y);
    task.k_rotated = wanted(k.y);
    heads(task, queue_);
  }

  void run_gate() const {
    const auto& r = record<ops::Gate>(unit_.ops.front());
    gate_rows(s_.value(r.gate), s_.value(r.up), r.activation, s_.n_rows(r.y), wanted(r.y), integers(), queue_);
  }

  void run_attention() const {
    const auto& r = record<ops::Attention>(unit_.ops.front());
    AttentionTask task;
    task.cache = s_.cache.layer(r.layer);
    task.q = s_.value(r.q);
    task.y = s_.value(r.y);
    task.n_heads = r.n_heads;
    task.window = r.window;
    task.scale = static_cast<float>(r.scale);
    task.tiles = s_.tiles();
    task.n_tiles = s_.n_tiles;
    task.partials = s_.partials.as<float>();
    task.n_segments = r.window > 0 ? std::min(s_.n_segments, r.window / ops::kAttentionSegment + 2) : s_.n_segments;
    if (s_.n_tokens > kSplitTokensMax) {
      attention_tiles(task, queue_);
      if (unit_.quantised != kNone) quantise_rows(task.y, s_.n_tokens, integers(), queue_.stream);
      return;
    }
    attention_split(task, queue_);
    if (unit_.quantised != kNone) {
      task.y = wanted(r.y);
      merge_rows(task, integers(), queue_);
    } else {
      attention_merge(task, queue_);
    }
  }

  const float* bias_of(const ops::Linear& r) const { return r.bias == kNone ? nullptr : s_.weights.small(r.bias); }

  void run_linears() const {
    if (unit_.quantised == kNone) return run_float_linear(record<ops::Linear>(unit_.ops.front()));
    std::array<LinearTask, kLinearsMax> tasks;
    size_t n = 0;
    for (const int32_t op : unit_.ops) {
      const auto& r = record<ops::Linear>(op);
      tasks[n++] = {&s_.weights.matrix(r.w), bias_of(r), s_.value(r.y)};
    }
    const int64_t n_tokens = s_.n_rows(record<ops::Linear>(unit_.ops.front()).y);
    const std::span<const LinearTask> all(tasks.data(), n);
    // One plane of few tokens makes too few of the large tiles to fill the machine.
    const bool small_tiles = integers().planes == 1 && integers().kind == quant::Activation::a256 && n_tokens <= kSmallTilesTokensMax;
    const auto run = n_tokens <= kGemvTokensMax ? linear_gemv : small_tiles ? nullptr : linear_mma;
    if (run != nullptr && run(all, integers(), n_tokens, queue_)) return;
    for (const LinearTask& task : all) {
      if (run != nullptr && run(std::span(&task, 1), integers(), n_tokens, queue_)) continue;
      if (n_tokens > kGemvTokensMax && linear_gemm(task, integers(), n_tokens, queue_)) continue;
      linear_any_format(*task.w, integers(), n_tokens, task.bias, task.y, queue_.stream);
    }
  }

  void run_float_linear(const ops::Linear& r) const {
    const Matrix& w = s_.weights.matrix(r.w);
    const int64_t n = s_.n_rows(r.y);
    const float* bias = bias_of(r);
    if (!s_.decodes(w)) return linear_float(w, s_.value(r.x), n, bias, s_.value(r.y), queue_.stream);
    const auto panel_rows = static_cast<int64_t>(s_.panel.size() / (static_cast<size_t>(w.cols) * sizeof(float)));
    for (int64_t row = 0; row < w.rows && n > 0; row += panel_rows) {
      const int64_t rows = std::min(panel_rows, w.rows - row);
      decode_rows(w, row, rows, s_.panel.as<float>(), queue_.stream);
      linear_decoded(s_.panel.as<float>(), rows, w.cols, s_.value(r.x), n, bias == nullptr ? nullptr : bias + row, s_.value(r.y) + row, w.rows,
                     queue_.stream);
    }
  }

  const DeviceState& s_;
  const Unit& unit_;
  const bool observed_;
  const Queue& queue_;
};

}  // namespace

void run_unit(const DeviceState& state, const Unit& unit, bool observed, const Queue& queue) { Runner(state, unit, observed, queue).run(); }

}  // namespace assay::backend::cuda
