// The Vulkan executor: lowers the plan into groups and chooses a kernel for every op once; then plays the program of
// each batch's shape (program.h).
#include "backend/vulkan/runtime/vulkan_executor.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "assay/error.h"
#include "backend/vulkan/runtime/borrow.h"
#include "backend/vulkan/runtime/device_state.h"
#include "backend/vulkan/runtime/groups.h"
#include "backend/vulkan/runtime/kernels.h"
#include "backend/vulkan/runtime/one_token.h"
#include "backend/vulkan/runtime/open_device.h"
#include "backend/vulkan/runtime/program.h"
#include "backend/vulkan/vulkan.h"
#include "base/index.h"
#include "lower/lowering.h"
#include "lower/small_weights.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan_check.h"

namespace assay::backend::vulkan {
namespace {

using ops::kNone;

class VulkanExecutor final : public ops::Executor {
 public:
  VulkanExecutor(const ops::Plan& plan, const ops::ExecutorOptions& options, std::unique_ptr<Device> device,
                 base::ThreadPool& pool, bool borrows_all)
      : plan_((ops::check_plan(plan, options), plan)), options_(options), device_(std::move(device)),
        chosen_(choose(plan, options,
                       {borrows_all ? 0 : device_->facts().piece_bytes_max, device_->matrix_depth() > 0,
                        device_->has_attention_tiles()})),
        lowering_(lower::lower(plan, options_, limits_for(plan, options_, device_->facts(), borrows_all))),
        one_steps_(borrows_all ? std::vector<OneStep>{} : find_one_steps(plan, options_, lowering_)),
        small_weights_(plan),
        state_(plan, options_, *device_, lowering_, find_step_of_group(lowering_.groups.size(), one_steps_),
               native_ops(), small_weights_),
        programs_(lowering_, chosen_, one_steps_, state_, [this] { record_end(); }),
        borrower_(plan, options_, small_weights_, pool), n_positions_(static_cast<size_t>(options.n_sequences), 0) {
    shape_.reserve(options_);
    const auto rows = [this](ops::ValueId id, int64_t n) {
      return static_cast<size_t>(n * state_.width(id)) * sizeof(float);
    };
    if (plan.output() != kNone)
      outputs_ = device_->allocate(rows(plan.output(), options.n_outputs_max), Device::Place::host, "logits");
    if (plan.handed != kNone)
      handed_ =
          device_->allocate(rows(plan.handed, options.n_batch_max), Device::Place::host, "rows that are handed on");
    if (plan.input != kNone) input_.resize(static_cast<size_t>(options.n_batch_max * state_.width(plan.input)));
  }

  void run(const ops::Batch& batch) override {
    ops::check_batch(batch, options_, n_positions_, shape_);
    if (!plan_.causal) ops::check_whole(shape_);
    observer_ = batch.request.observer;
    timer_ = device_->facts().tick_ns > 0 ? batch.request.timer : nullptr;
    state_.begin(batch, shape_);
    borrower_.begin(batch, shape_, state_.rope_tables);
    borrower_.states().begin(shape_.token_runs);
    try {
      if (plan_.input != kNone)
        state_.write_value(plan_.input,
                           std::span(input_).first(static_cast<size_t>(state_.n_tokens() * state_.width(plan_.input))));
      const auto n_outputs = static_cast<int64_t>(shape_.selected.size());
      if (timer_ != nullptr) {
        device_->set_timed(true);
        const Program timed = programs_.record(n_outputs, true);
        device_->set_timed(false);
        play_timed(timed);
      } else {
        observer_ == nullptr ? play(programs_.find(n_outputs)) : play(programs_.record(n_outputs, true));
      }
    } catch (...) {  // states lie in the midst of the batch
      device_->set_timed(false);
      device_->abandon();
      for (size_t i = 0; i < n_positions_.size(); ++i) truncate(static_cast<int>(i), n_positions_[i]);
      throw;
    }
    borrower_.states().end();
    n_positions_ = shape_.n_positions;
  }

  std::span<const float> logits(int64_t i_output) const override {
    const auto n = static_cast<size_t>(plan_.output_width());
    return {outputs_.as<const float>() + static_cast<size_t>(i_output) * n, n};
  }
  void read_logits(int64_t i_output, std::span<double> out) const override {
    const std::span<const float> row = logits(i_output);
    std::copy(row.begin(), row.end(), out.begin());
  }

  std::span<float> input(int64_t n_tokens) override {
    if (n_tokens < 0 || n_tokens > options_.n_batch_max) return {};  // run() says so
    return std::span(input_).first(static_cast<size_t>(n_tokens * state_.width(plan_.input)));
  }
  std::span<const float> handed() const override {
    return {handed_.as<const float>(), static_cast<size_t>(state_.n_tokens() * state_.width(plan_.handed))};
  }

  void truncate(int sequence, int64_t n_positions) override {
    ops::check_sequence(sequence, options_);
    int64_t& kept = n_positions_[static_cast<size_t>(sequence)];
    kept = borrower_.states().truncate(sequence, std::clamp<int64_t>(n_positions, 0, kept), kept);
  }
  int64_t n_positions(int sequence) const override {
    ops::check_sequence(sequence, options_);
    return n_positions_[static_cast<size_t>(sequence)];
  }

  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    const int64_t n = n_positions(sequence);
    state_.cache.visit(sequence, n, sink);
    if (n > 0) borrower_.states().visit(sequence, sink);
  }

  ops::RunSupport supports() const override { return {.timer = device_->facts().tick_ns > 0}; }
  std::vector<ops::KernelUse> kernels_of(int32_t i_op) const override {
    const auto has_op = [&](const lower::FusionGroup& group) {
      return std::ranges::find(group.ops, i_op) != group.ops.end();
    };
    const auto g = static_cast<int32_t>(std::ranges::find_if(lowering_.groups, has_op) - lowering_.groups.begin());
    const bool is_in_one =
        std::ranges::any_of(one_steps_, [g](const OneStep& one) { return g == one.first || g == one.last(); });
    std::vector<ops::KernelUse> uses;
    if (is_in_one) uses.push_back({1, 1, std::string(kHeadsAndAttention), false});
    const auto add = [&](int64_t first, int64_t last, std::string_view name) {
      if (is_in_one && first == 1) first = 2;
      if (last != 0 && last < first) return;
      if (!uses.empty() && uses.back().name == name && uses.back().tokens_max == first - 1) {
        uses.back().tokens_max = last;
      } else {
        uses.push_back({first, last, std::string(name), false});
      }
    };
    if (const std::string_view name = kernel_of(state_, lowering_.groups[at(g)]); !name.empty()) {
      add(1, 0, name);
      return uses;
    }
    for (const Kernel* kernel : chosen_[static_cast<size_t>(i_op)])
      add(kernel->tokens_min, kernel->tokens_max, kernel->name);
    if (uses.empty()) uses.push_back({1, 0, "reference on the host", true});
    return uses;
  }
  size_t cache_bytes() const override { return state_.cache.bytes() + borrower_.states().bytes(); }
  size_t arena_bytes() const override {
    return state_.arena_bytes() + outputs_.size() + handed_.size() + input_.size() * sizeof(float);
  }

 private:
  // No bytes of a matrix: nothing is chosen.
  static Chosen choose(const ops::Plan& plan, const ops::ExecutorOptions& options, const Offer& offer) {
    if (options.n_batch_max > kGroupsMax) {
      throw Error(Errc::unsupported, "chunks of " + std::to_string(options.n_batch_max) +
                                         " tokens (-ub): the Vulkan backend takes up to " + std::to_string(kGroupsMax));
    }
    Chosen chosen;
    for (const ops::Op& op : plan.ops)
      chosen.push_back(offer.matrix_bytes_max == 0 ? std::vector<const Kernel*>{}
                                                   : kernels_for(plan, options, op, offer));
    return chosen;
  }
  std::vector<uint8_t> native_ops() const {
    std::vector<uint8_t> native;
    for (const auto& rows : chosen_) native.push_back(rows.empty() ? 0 : 1);
    return native;
  }

  void record_end() {
    if (plan_.output() != kNone) state_.copy_value(plan_.output(), outputs_);
    if (plan_.handed != kNone) state_.copy_value(plan_.handed, handed_);
  }

  void play(const Program& program) {
    std::vector<const Recording*> waiting;
    for (const Part& part : program.parts) {
      if (!part.commands.is_empty()) waiting.push_back(&part.commands);
      if (part.borrowed == kNone && !part.ends_group) continue;
      device_->run(waiting);
      waiting.clear();
      if (part.borrowed != kNone) borrower_.run(state_, part.borrowed);
      for (const int32_t i : part.seen) {
        if (observer_ != nullptr) observe(plan_.ops[at(i)]);
      }
    }
    device_->run(waiting);
  }

  // The same, each part by itself.
  void play_timed(const Program& program) {
    int64_t nanoseconds = 0;
    for (const Part& part : program.parts) {
      if (!part.commands.is_empty()) nanoseconds += device_->run_timed(part.commands);
      const auto begin = std::chrono::steady_clock::now();
      if (part.borrowed != kNone) borrower_.run(state_, part.borrowed);
      nanoseconds +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
      if (!part.ends_group) continue;
      timer_->on_step(part.seen, nanoseconds);
      nanoseconds = 0;
      for (const int32_t i : part.seen) {
        if (observer_ != nullptr) observe(plan_.ops[at(i)]);
      }
    }
  }

  void observe(const ops::Op& op) {
    const ops::ValueId id = ops::announced_value(op);
    const int64_t n_rows = state_.n_rows(id), width = state_.width(id);
    if (n_rows == 0 || !observer_->wants(op)) return;
    std::vector<float> floats(static_cast<size_t>(n_rows * width));
    state_.read_value(id, floats);
    observed_.assign(floats.begin(), floats.end());
    observer_->on_op(op, n_rows, width, observed_);
  }

  const ops::Plan& plan_;
  const ops::ExecutorOptions options_;
  const std::unique_ptr<Device> device_;  // ahead of what lies in its memory
  const Chosen chosen_;
  const lower::Lowering lowering_;
  const std::vector<OneStep> one_steps_;
  const lower::SmallWeights small_weights_;
  DeviceState state_;
  Programs programs_;
  Borrower borrower_;
  ops::BatchShape shape_;
  Buffer outputs_, handed_;
  std::vector<float> input_;
  std::vector<int64_t> n_positions_;     // per sequence
  ops::OpObserver* observer_ = nullptr;  // of the run at work
  ops::StepTimer* timer_ = nullptr;
  std::vector<double> observed_;
};

}  // namespace

std::unique_ptr<ops::Executor> make_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                             std::unique_ptr<Device> device, base::ThreadPool& pool, bool borrows_all) {
  return std::make_unique<VulkanExecutor>(plan, options, std::move(device), pool, borrows_all);
}

std::unique_ptr<ops::Executor> make_vulkan_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                    int device, base::ThreadPool& pool, std::string& note) {
  std::unique_ptr<Device> opened = open_device(device);
  note = opened->cache_note();
  return make_executor(plan, options, std::move(opened), pool, false);
}

}  // namespace assay::backend::vulkan
