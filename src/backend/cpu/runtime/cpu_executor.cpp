// The CPU executor: takes memory for everything once, then walks the schedule for every batch.
#include "backend/cpu/runtime/cpu_executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "backend/cpu/linear/expert_step.h"
#include "backend/cpu/linear/kernel_uses.h"
#include "backend/cpu/runtime/run_state.h"
#include "backend/cpu/runtime/schedule.h"
#include "backend/cpu/runtime/shard_table.h"
#include "backend/cpu/runtime/steps.h"
#include "backend/cpu/runtime/take_pages.h"
#include "base/round_up.h"
#include "lower/placement.h"
#include "lower/small_weights.h"
#include "ops/attention/attention.h"
#include "ops/linear/gather.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan_check.h"

namespace assay::backend::cpu {
namespace {

using ops::kNone;

struct ScratchBytes {
  size_t of_thread = 64;
  size_t partials = 0;   // of one token's attention
  size_t read_back = 0;  // of a layer of the cache, for ops that are borrowed
};

ScratchBytes scratch_bytes(const RunState& state, const ops::ExecutorOptions& options, const Schedule& schedule,
                           const std::vector<LinearStep>& linears, const ExpertSteps& experts) {
  ScratchBytes most;
  size_t& bytes = most.of_thread;
  bytes = std::max(bytes, experts.scratch_bytes());
  for (const LinearStep& step : linears) {
    for (size_t i = 0; i < step.tasks.size(); ++i)
      bytes = std::max(bytes, step.choices[i].scratch_bytes(step.tasks[i]));
  }
  for (const Step& step : schedule.steps) {
    if (step.kind != Step::Kind::cached) continue;
    const ops::Op& op = state.plan.ops[static_cast<size_t>(step.op)];
    bytes = std::max(bytes, step.cached_kernel.thread_bytes(state, op));
    if (step.cached_kernel.shared_bytes != nullptr)
      most.read_back = std::max(most.read_back, step.cached_kernel.shared_bytes(state, op));
  }
  for (const ops::Op& op : state.plan.ops) {
    const auto* record = op.as<ops::Attention>();
    if (record == nullptr) continue;
    const int64_t v_dim = state.plan.cache_layers[static_cast<size_t>(record->layer)].v_dim();
    bytes = std::max(bytes, state.kernels.attention_scratch_bytes(record->head_dim, v_dim, options.n_ctx));
    most.partials = std::max(most.partials, attention_partials_bytes(*record, v_dim, options.n_ctx));
  }
  for (const ops::CacheLayer& layer : state.plan.cache_layers) {
    bytes = std::max(bytes, static_cast<size_t>(std::max(layer.head_dim, layer.v_dim())) *
                                sizeof(float));  // one row on its way into the cache
  }
  bytes = base::round_up(bytes, 64) + 64;  // no two threads on one cache line pair
  return most;
}

// A value's rows one after the other, wherever they lie.
void read_rows(const RunState& s, ops::ValueId value, std::vector<double>& rows) {
  const int64_t width = s.width(value), n_rows = s.n_rows(value);
  const ops::ValueLayout& layout = s.layout(value);
  rows.clear();
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t first = 0; first < width; first += layout.left(first, width)) {
      const float* begin = s.column(value, i, first);
      rows.insert(rows.end(), begin, begin + layout.left(first, width));
    }
  }
}

void gather(const RunState& s, const ops::Gather& op, ShardTable* shards, int i_shard) {
  if (shards == nullptr) throw Error(Errc::bad_request, "a shard of a model needs the others to run");
  const int64_t own = s.width(op.x), all = s.width(op.y), n_rows = s.n_rows(op.y);
  shards->gather(i_shard, {s.row(op.x, 0), n_rows, own, own}, op.column, {s.row(op.y, 0), n_rows, all, all});
}

class CpuExecutor final : public ops::Executor {
 public:
  CpuExecutor(const ops::Plan& plan, const ops::ExecutorOptions& options, const CpuOptions& cpu, base::ThreadPool& pool)
      : plan_(plan), options_(options),
        schedule_((ops::check_plan(plan, options), make_schedule(plan, options, cpu.with_views))),
        cache_(plan.cache_layers, options, ops::CacheWindows(plan)), states_(plan, options),
        state_(plan, cpu.kernels, cpu.kernel_row, cache_, states_, pool), shards_(cpu.shards), i_shard_(cpu.i_shard),
        small_weights_(plan), n_positions_(static_cast<size_t>(options.n_sequences), 0) {
    for (const ops::RopeSpec& spec : plan.ropes) state_.rope_tables.emplace_back(spec, options.n_ctx);
    state_.n_ctx = options.n_ctx;
    state_.shape.reserve(options);
    state_.small_weights = small_weights_.all();
    place_values();
    for (const Step& step : schedule_.steps) {
      linear_steps_.push_back(step.kind == Step::Kind::linears ? make_linear_step(state_, step, options_)
                                                               : LinearStep{});
    }
    experts_ = std::make_unique<ExpertSteps>(state_, options_);
    place_scratch();
  }

  void run(const ops::Batch& batch) override {
    begin(batch);
    states_.begin(state_.shape.token_runs);
    try {
      run_steps(batch.request);
    } catch (...) {  // pages were taken for the batch, and the states lie in the midst of it
      for (size_t i = 0; i < n_positions_.size(); ++i) truncate(static_cast<int>(i), n_positions_[i]);
      throw;
    }
    states_.end();
    n_positions_ = state_.shape.n_positions;
  }

  void run_steps(const ops::RunRequest& request) {
    if (request.timer != nullptr && step_ops_.empty()) {
      for (const Step& step : schedule_.steps) step_ops_.push_back(ops_of(step));
    }
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      const Step& step = schedule_.steps[i];
      if (state_.n_rows(step.domain) == 0) continue;
      if (request.timer == nullptr) {
        run_step(i);
      } else {
        const auto start = std::chrono::steady_clock::now();
        run_step(i);
        const auto spent = std::chrono::steady_clock::now() - start;
        request.timer->on_step(step_ops_[i], std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
      }
      if (request.observer != nullptr) [[unlikely]]
        observe(step, *request.observer);
    }
  }

  std::span<const float> logits(int64_t i_output) const override {
    return {state_.row(plan_.output(), i_output), static_cast<size_t>(plan_.output_width())};
  }

  void read_logits(int64_t i_output, std::span<double> out) const override {
    const std::span<const float> row = logits(i_output);
    std::copy(row.begin(), row.end(), out.begin());
  }

  std::span<float> input(int64_t n_tokens) override {
    if (n_tokens < 0 || n_tokens > options_.n_batch_max) return {};  // run() says so
    return {state_.row(plan_.input, 0), static_cast<size_t>(n_tokens * state_.width(plan_.input))};
  }
  std::span<const float> handed() const override {
    return {state_.row(plan_.handed, 0), state_.tokens.size() * static_cast<size_t>(state_.width(plan_.handed))};
  }

  void truncate(int sequence, int64_t n_positions) override {
    ops::check_sequence(sequence, options_);
    int64_t& kept = n_positions_[static_cast<size_t>(sequence)];
    kept =
        states_.truncate(sequence, cache_.tables().n_usable(sequence, std::clamp<int64_t>(n_positions, 0, kept)), kept);
    cache_.truncate(sequence, kept);
  }

  int64_t n_positions(int sequence) const override {
    ops::check_sequence(sequence, options_);
    return n_positions_[static_cast<size_t>(sequence)];
  }

  ops::CachePages pages() const override {
    const int64_t n_pages = cache_.tables().all().pool().n_pages(), n_free = cache_.tables().n_free();
    return {kCachePage, n_pages, n_free, cache_.page_bytes(), cache_.window_bytes(), cache_.used_bytes(), true};
  }
  int64_t n_pages_needed(int sequence, int64_t n_more) const override {
    ops::check_sequence(sequence, options_);
    return cache_.tables().n_needed(sequence, n_more);
  }
  bool fork(int from, int64_t n_positions, int to) override {
    ops::check_sequence(from, options_);
    ops::check_sequence(to, options_);
    const int64_t n_held = this->n_positions(from);
    n_positions = std::clamp<int64_t>(n_positions, 0, n_held);
    if (n_usable(from, n_positions) < n_positions) return false;
    if (from == to) return truncate(to, n_positions), true;
    truncate(to, 0);
    if (n_positions % kCachePage != 0 && cache_.tables().n_free() == 0) return false;
    cache_.fork(from, n_positions, to);
    states_.fork(from, n_positions, n_held, to);
    n_positions_[static_cast<size_t>(to)] = n_positions;
    return true;
  }
  void forget(int sequence, int64_t begin, int64_t end) override {
    ops::check_sequence(sequence, options_);
    if (states_.empty()) cache_.forget(sequence, std::max<int64_t>(0, begin), std::min(end, n_positions(sequence)));
  }
  int64_t n_usable(int sequence, int64_t n) const override {
    ops::check_sequence(sequence, options_);
    const int64_t n_held = n_positions(sequence);
    n = std::clamp<int64_t>(n, 0, n_held);
    for (int64_t before = -1; before != n;) {  // what both can go on behind
      before = n;
      n = cache_.tables().n_usable(sequence, states_.n_usable(sequence, n, n_held));
    }
    return n;
  }
  bool holds_window(int sequence, int64_t i_page) const override {
    ops::check_sequence(sequence, options_);
    return cache_.tables().holds_window(sequence, i_page);
  }
  bool read_page(int sequence, int64_t i_page, std::span<std::byte> image) const override {
    if (!states_.empty()) return false;  // pages hold none
    if (i_page < 0 || i_page * kCachePage >= n_positions(sequence) || !cache_.has_image(sequence, i_page, image.size()))
      return false;
    cache_.read_page(sequence, i_page, image);
    return true;
  }
  bool append_page(int sequence, int64_t n_more, std::span<const std::byte> image) override {
    int64_t& n = n_positions_[static_cast<size_t>((ops::check_sequence(sequence, options_), sequence))];
    if (!states_.empty() || n % kCachePage != 0 || n_more < 1 || n_more > kCachePage || n + n_more > options_.n_ctx ||
        !cache_.is_image(image.size()) || cache_.tables().n_free() == 0) {
      return false;
    }
    cache_.append_page(sequence, n_more, image);
    n += n_more;
    return true;
  }

  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    cache_.visit(sequence, n_positions(sequence), sink);
    if (n_positions(sequence) > 0) states_.visit(sequence, sink);
  }

  ops::RunSupport supports() const override { return {.timer = true}; }
  std::vector<ops::KernelUse> kernels_of(int32_t i_op) const override {
    return kernel_uses({plan_, state_.kernel_set, schedule_, linear_steps_, *experts_}, i_op);
  }
  size_t cache_bytes() const override { return cache_.bytes() + states_.bytes(); }
  size_t arena_bytes() const override {
    size_t bytes = experts_->bytes() + arena_.size() + scratch_.size() + partials_.size() + read_back_.size() +
                   small_weights_.bytes();
    for (const ops::RopeTable& table : state_.rope_tables) bytes += table.bytes();
    return bytes;
  }

 private:
  void run_step(size_t i) {
    const Step& step = schedule_.steps[i];
    switch (step.kind) {
      case Step::Kind::rows: run_row_step(state_, step); break;
      case Step::Kind::linears: run_linear_step(state_, linear_steps_[i], state_.n_rows(step.domain)); break;
      case Step::Kind::attention:
        run_attention_step(state_, record<ops::Attention>(step), reinterpret_cast<float*>(partials_.data()));
        break;
      case Step::Kind::cached: step.cached_kernel.run(state_, plan_.ops[static_cast<size_t>(step.op)]); break;
      case Step::Kind::experts: experts_->run(record<ops::ExpertLinear>(step)); break;
      case Step::Kind::state: run_state_step(state_, step); break;
      case Step::Kind::gather: gather(state_, record<ops::Gather>(step), shards_, i_shard_); break;
    }
  }

  template <class Record>
  const Record& record(const Step& step) const {
    return plan_.ops[static_cast<size_t>(step.op)].get<Record>();
  }

  // Values and their quantised twins share one arena.
  void place_values() {
    const lower::Placement placement =
        lower::place_values(plan_, schedule_.twins, schedule_.lifetimes, options_, 64, &schedule_.views);
    arena_ =
        base::AlignedBuffer(placement.bytes, "the activations of " + std::to_string(options_.n_batch_max) + " tokens");
    lower::Places places = lower::places_in(arena_.data(), placement, plan_, schedule_.twins, options_);
    state_.values = std::move(places.values);
    state_.layouts = schedule_.views.layouts;
    state_.twins = std::move(places.twins);
    for (const lower::Twin& twin : schedule_.twins.list) state_.twin_values.push_back(twin.x);
  }

  void place_scratch() {
    const ScratchBytes bytes = scratch_bytes(state_, options_, schedule_, linear_steps_, *experts_);
    scratch_ = base::AlignedBuffer(bytes.of_thread * static_cast<size_t>(state_.pool.n_threads()), "threads' scratch");
    partials_ = base::AlignedBuffer(bytes.partials, "scratch memory of attention");
    read_back_ = base::AlignedBuffer(bytes.read_back, "keys and values as floats");
    state_.read_back = reinterpret_cast<float*>(read_back_.data());
    for (int i = 0; i < state_.pool.n_threads(); ++i)
      state_.scratch.push_back(scratch_.data() + static_cast<size_t>(i) * bytes.of_thread);
  }

  void begin(const ops::Batch& batch) {
    ops::check_batch(batch, options_, n_positions_, state_.shape);
    if (!plan_.causal) ops::check_whole(state_.shape);
    take_pages(cache_, n_positions_, state_.shape);
    state_.tokens = batch.tokens;
    state_.positions = batch.positions;
    state_.sequences = batch.sequences;
    const int64_t n_positions = *std::max_element(state_.shape.n_positions.begin(), state_.shape.n_positions.end());
    for (ops::RopeTable& table : state_.rope_tables) table.fill_to(n_positions);
    state_.host_rows = {&plan_,       state_.values,   state_.small_weights,  state_.rope_tables,
                        batch.tokens, batch.positions, state_.shape.selected, state_.layouts};
  }

  void observe(const Step& step, ops::OpObserver& observer) {
    for (const int32_t i_op : ops_of(step)) announce(i_op, observer);
  }

  void announce(int32_t i_op, ops::OpObserver& observer) {
    const ops::Op& op = plan_.ops[static_cast<size_t>(i_op)];
    if (!observer.wants(op)) return;
    const ops::ValueId value = ops::announced_value(op);
    read_rows(state_, value, observed_);
    observer.on_op(op, state_.n_rows(value), state_.width(value), observed_);
  }

  const ops::Plan& plan_;
  const ops::ExecutorOptions options_;
  const Schedule schedule_;
  KvCache cache_;
  ops::StateStore<float> states_;
  RunState state_;
  ShardTable* const shards_;
  const int i_shard_;
  std::vector<LinearStep> linear_steps_;  // one per step, empty where it is none
  std::unique_ptr<ExpertSteps> experts_;
  const lower::SmallWeights small_weights_;
  base::AlignedBuffer arena_, scratch_, partials_, read_back_;
  std::vector<int64_t> n_positions_;  // per sequence
  std::vector<double> observed_;
  std::vector<std::vector<int32_t>> step_ops_;  // per step, once a run was timed
};

}  // namespace

std::unique_ptr<ops::Executor> make_cpu_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                 const CpuOptions& cpu, base::ThreadPool& pool) {
  return std::make_unique<CpuExecutor>(plan, options, cpu, pool);
}

}  // namespace assay::backend::cpu
