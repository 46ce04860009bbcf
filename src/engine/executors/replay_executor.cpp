// See replay_executor.h.
#include "engine/executors/replay_executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ops/plan/batch_shape.h"
#include "ops/plan/forwarding_executor.h"

namespace assay::engine {
namespace {

class ReplayExecutor final : public ops::ForwardingExecutor {
 public:
  ReplayExecutor(std::unique_ptr<ops::Executor> inner, const ops::ExecutorOptions& options)
      : ForwardingExecutor(std::move(inner)), options_(options), tokens_(static_cast<size_t>(options.n_sequences)) {
    for (std::vector<int32_t>& tokens : tokens_) tokens.reserve(static_cast<size_t>(options.n_ctx));
    const auto n = static_cast<size_t>(options.n_batch_max);
    positions_.reserve(n), sequences_.reserve(n), outputs_.assign(n, 0);
  }

  void run(const ops::Batch& batch) override {
    for (size_t i = 0; i < tokens_.size(); ++i) catch_up(static_cast<int>(i));  // after a run that failed
    inner().run(batch);
    for (size_t t = 0; t < batch.tokens.size(); ++t)
      tokens_[batch.sequences.empty() ? 0 : static_cast<size_t>(batch.sequences[t])].push_back(batch.tokens[t]);
  }

  void truncate(int sequence, int64_t n_positions) override {
    inner().truncate(sequence, n_positions);
    std::vector<int32_t>& tokens = tokens_[static_cast<size_t>(sequence)];
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(0, n_positions))));
    catch_up(sequence);
  }

  int64_t n_positions(int sequence) const override {
    ops::check_sequence(sequence, options_);
    return static_cast<int64_t>(tokens_[static_cast<size_t>(sequence)].size());
  }

  // Pages hold no states: none are shown.
  ops::CachePages pages() const override { return {}; }
  int64_t n_pages_needed(int, int64_t) const override { return 0; }
  bool fork(int, int64_t, int) override { return false; }
  void forget(int, int64_t, int64_t) override {}
  int64_t n_usable(int, int64_t n) const override { return n; }
  bool read_page(int, int64_t, std::span<std::byte>) const override { return false; }
  bool append_page(int, int64_t, std::span<const std::byte>) override { return false; }

 private:
  // Runs what the inner executor lacks of the sequence's tokens; nobody asked for that, so nobody watches.
  void catch_up(int sequence) {
    const std::vector<int32_t>& tokens = tokens_[static_cast<size_t>(sequence)];
    const auto n_all = static_cast<int64_t>(tokens.size());
    if (inner().n_positions(sequence) >= n_all) return;
    for (int64_t begin = inner().n_positions(sequence); begin < n_all;) {
      const int64_t n = std::min(options_.n_batch_max, n_all - begin);
      positions_.clear();
      for (int64_t i = 0; i < n; ++i) positions_.push_back(static_cast<int32_t>(begin + i));
      sequences_.assign(static_cast<size_t>(n), sequence);
      const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(n);
      inner().run({std::span(tokens).subspan(first, count), positions_, sequences_, std::span(outputs_).first(count)});
      begin += n;
    }
  }

  const ops::ExecutorOptions options_;
  std::vector<std::vector<int32_t>> tokens_;  // per sequence
  std::vector<int32_t> positions_, sequences_;
  std::vector<uint8_t> outputs_;  // none
};

}  // namespace

std::unique_ptr<ops::Executor> with_replay(std::unique_ptr<ops::Executor> inner, const ops::Plan& plan,
                                           const ops::ExecutorOptions& options) {
  if (plan.states.empty()) return inner;
  return std::make_unique<ReplayExecutor>(std::move(inner), options);
}

}  // namespace assay::engine
