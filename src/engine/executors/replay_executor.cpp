// See replay_executor.h.
#include "engine/executors/replay_executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/plan/batch_shape.h"

namespace assay::engine {
namespace {

class ReplayExecutor final : public ops::Executor {
 public:
  ReplayExecutor(std::unique_ptr<ops::Executor> inner, const ops::ExecutorOptions& options)
      : inner_(std::move(inner)), options_(options), tokens_(static_cast<size_t>(options.n_sequences)) {
    for (std::vector<int32_t>& tokens : tokens_) tokens.reserve(static_cast<size_t>(options.n_ctx));
    const auto n = static_cast<size_t>(options.n_batch_max);
    positions_.reserve(n), sequences_.reserve(n), outputs_.assign(n, 0);
  }

  void run(const ops::Batch& batch) override {
    for (size_t i = 0; i < tokens_.size(); ++i) catch_up(static_cast<int>(i));  // after a run that failed
    inner_->run(batch);
    for (size_t t = 0; t < batch.tokens.size(); ++t)
      tokens_[batch.sequences.empty() ? 0 : static_cast<size_t>(batch.sequences[t])].push_back(batch.tokens[t]);
  }

  void truncate(int sequence, int64_t n_positions) override {
    inner_->truncate(sequence, n_positions);
    std::vector<int32_t>& tokens = tokens_[static_cast<size_t>(sequence)];
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(0, n_positions))));
    catch_up(sequence);
  }

  int64_t n_positions(int sequence) const override {
    ops::check_sequence(sequence, options_);
    return static_cast<int64_t>(tokens_[static_cast<size_t>(sequence)].size());
  }

  void set_observer(ops::OpObserver* observer) override { inner_->set_observer(observer_ = observer); }
  bool set_step_timer(ops::StepTimer* timer) override {
    timer_ = timer;
    return inner_->set_step_timer(timer);
  }

  std::span<const float> logits(int64_t i_output) const override { return inner_->logits(i_output); }
  void read_logits(int64_t i_output, std::span<double> out) const override { inner_->read_logits(i_output, out); }
  bool set_n_ranked(int64_t n) override { return inner_->set_n_ranked(n); }
  bool set_allowed(std::span<const ops::AllowedTokens> outputs) override { return inner_->set_allowed(outputs); }
  std::span<const ops::RankedLogit> ranked(int64_t i_output) const override { return inner_->ranked(i_output); }
  bool set_follows_best(bool follows) override { return inner_->set_follows_best(follows); }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    inner_->visit_cache(sequence, sink);
  }
  std::vector<ops::KernelUse> kernels_of(int32_t i_op) const override { return inner_->kernels_of(i_op); }
  size_t cache_bytes() const override { return inner_->cache_bytes(); }
  size_t arena_bytes() const override { return inner_->arena_bytes(); }

 private:
  // Runs what the inner executor lacks of the sequence's tokens.
  void catch_up(int sequence) {
    const std::vector<int32_t>& tokens = tokens_[static_cast<size_t>(sequence)];
    const auto n_all = static_cast<int64_t>(tokens.size());
    if (inner_->n_positions(sequence) >= n_all) return;
    inner_->set_observer(nullptr);
    inner_->set_step_timer(nullptr);
    for (int64_t begin = inner_->n_positions(sequence); begin < n_all;) {
      const int64_t n = std::min(options_.n_batch_max, n_all - begin);
      positions_.clear();
      for (int64_t i = 0; i < n; ++i) positions_.push_back(static_cast<int32_t>(begin + i));
      sequences_.assign(static_cast<size_t>(n), sequence);
      const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(n);
      inner_->run({std::span(tokens).subspan(first, count), positions_, sequences_, std::span(outputs_).first(count)});
      begin += n;
    }
    inner_->set_observer(observer_);
    inner_->set_step_timer(timer_);
  }

  const std::unique_ptr<ops::Executor> inner_;
  const ops::ExecutorOptions options_;
  std::vector<std::vector<int32_t>> tokens_;  // per sequence
  std::vector<int32_t> positions_, sequences_;
  std::vector<uint8_t> outputs_;  // none
  ops::OpObserver* observer_ = nullptr;
  ops::StepTimer* timer_ = nullptr;
};

}  // namespace

std::unique_ptr<ops::Executor> with_replay(std::unique_ptr<ops::Executor> inner, const ops::Plan& plan,
                                           const ops::ExecutorOptions& options) {
  if (plan.states.empty()) return inner;
  return std::make_unique<ReplayExecutor>(std::move(inner), options);
}

}  // namespace assay::engine
