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
      : ForwardingExecutor(std::move(inner)), inner_(ForwardingExecutor::inner()), options_(options),
        tokens_(static_cast<size_t>(options.n_sequences)) {
    for (std::vector<int32_t>& tokens : tokens_) tokens.reserve(static_cast<size_t>(options.n_ctx));
    const auto n = static_cast<size_t>(options.n_batch_max);
    positions_.reserve(n), sequences_.reserve(n), outputs_.assign(n, 0);
  }

  void run(const ops::Batch& batch) override {
    const auto sequence_of = [&](size_t t) { return batch.sequences.empty() ? 0 : batch.sequences[t]; };
    for (size_t t = 0; t < batch.tokens.size(); ++t) {
      if (t == 0 || sequence_of(t) != sequence_of(t - 1)) catch_up(sequence_of(t));
    }
    inner_.run(batch);
    for (size_t t = 0; t < batch.tokens.size(); ++t) tokens_of(sequence_of(t)).push_back(batch.tokens[t]);
  }

  // What the inner executor loses beside that runs again once somebody needs it: the logits of the last run stay, and
  // what is cut further in the meantime costs nothing.
  void truncate(int sequence, int64_t n_positions) override {
    inner_.truncate(sequence, n_positions);
    std::vector<int32_t>& tokens = tokens_of(sequence);
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(0, n_positions))));
  }

  int64_t n_positions(int sequence) const override {
    ops::check_sequence(sequence, options_);
    return static_cast<int64_t>(tokens_[static_cast<size_t>(sequence)].size());
  }

  // Pages hold no states. Where forks take them along they are shown, but for their images.
  ops::CachePages pages() const override { return has_pages() ? inner_.pages() : ops::CachePages{}; }
  int64_t n_pages_needed(int sequence, int64_t n_more) const override {
    const int64_t n_lost = n_positions(sequence) - inner_.n_positions(sequence);
    return has_pages() ? inner_.n_pages_needed(sequence, n_lost + n_more) : 0;
  }
  bool fork(int from, int64_t n_positions, int to) override {
    if (!has_pages()) return false;
    n_positions = std::clamp<int64_t>(n_positions, 0, this->n_positions(from));
    if (n_usable(from, n_positions) < n_positions) return false;
    if (from == to) return truncate(to, n_positions), true;
    truncate(to, 0);
    if (!inner_.fork(from, n_positions, to)) return false;
    const std::vector<int32_t>& tokens = tokens_of(from);
    tokens_of(to).assign(tokens.begin(), tokens.begin() + n_positions);
    return true;
  }
  void forget(int, int64_t, int64_t) override {}
  // Without running tokens again.
  int64_t n_usable(int sequence, int64_t n) const override {
    return has_pages() ? inner_.n_usable(sequence, n) : std::clamp<int64_t>(n, 0, n_positions(sequence));
  }
  bool read_page(int, int64_t, std::span<std::byte>) const override { return false; }
  bool append_page(int, int64_t, std::span<const std::byte>) override { return false; }
  bool begin_read_page(int, int64_t, std::span<std::byte>, base::PendingCopies&) const override { return false; }
  bool begin_append_page(int, int64_t, std::span<const std::byte>, base::PendingCopies&) override { return false; }

  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    catch_up(sequence);
    inner_.visit_cache(sequence, sink);
  }

 private:
  bool has_pages() const { return inner_.pages().with_states; }
  std::vector<int32_t>& tokens_of(int sequence) { return tokens_[static_cast<size_t>(sequence)]; }

  // Runs what the inner executor lacks of the sequence's tokens; nobody asked for that, so nobody watches.
  void catch_up(int sequence) const {
    ops::check_sequence(sequence, options_);
    const std::vector<int32_t>& tokens = tokens_[static_cast<size_t>(sequence)];
    const auto n_all = static_cast<int64_t>(tokens.size());
    for (int64_t begin = inner_.n_positions(sequence); begin < n_all;) {
      const int64_t n = std::min(options_.n_batch_max, n_all - begin);
      positions_.clear();
      for (int64_t i = 0; i < n; ++i) positions_.push_back(static_cast<int32_t>(begin + i));
      sequences_.assign(static_cast<size_t>(n), sequence);
      const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(n);
      inner_.run({std::span(tokens).subspan(first, count), positions_, sequences_, std::span(outputs_).first(count)});
      begin += n;
    }
  }

  ops::Executor& inner_;  // also of those that only look: what they look at may have to be run first
  const ops::ExecutorOptions options_;
  std::vector<std::vector<int32_t>> tokens_;  // per sequence
  mutable std::vector<int32_t> positions_, sequences_;
  std::vector<uint8_t> outputs_;  // none
};

}  // namespace

std::unique_ptr<ops::Executor> with_replay(std::unique_ptr<ops::Executor> inner, const ops::Plan& plan,
                                           const ops::ExecutorOptions& options) {
  if (plan.states.empty()) return inner;
  return std::make_unique<ReplayExecutor>(std::move(inner), options);
}

}  // namespace assay::engine
