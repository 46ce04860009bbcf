// See shard_executor.h.
#include "engine/executors/shard_executor.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "engine/executors/truncate_all.h"
#include "ops/attention/attention.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan_check.h"
#include "ops/plan/plan_shards.h"

namespace assay::engine {
namespace {

// Puts the columns that the shards announce together and announces them as the whole plan's ops, one shard's thread at
// a time.
class ColumnJoiner {
 public:
  ColumnJoiner(const ops::Plan& whole, int n_shards) : whole_(whole), n_shards_(n_shards) {}

  void watch_for(ops::OpObserver* observer) {
    observer_ = observer;
    pending_.clear();
  }
  bool wants(int32_t i_op) {
    const std::scoped_lock lock(mutex_);
    return observer_->wants(op(i_op));
  }
  void add(const ops::PlanShard::Origin& origin, int64_t n_rows, std::span<const double> values) {
    const std::scoped_lock lock(mutex_);
    const ops::Op& whole = op(origin.i_op);
    const int64_t width = whole_.values[static_cast<size_t>(ops::announced_value(whole))].width;
    const int64_t n_columns = origin.columns.end - origin.columns.begin;
    if (origin.is_whole) return observer_->on_op(whole, n_rows, width, values);
    Pending& pending = pending_[origin.i_op];
    pending.values.resize(static_cast<size_t>(n_rows * width));
    for (int64_t t = 0; t < n_rows; ++t) {
      std::copy_n(values.begin() + t * n_columns, n_columns, pending.values.begin() + t * width + origin.columns.begin);
    }
    if (++pending.n_shards < n_shards_) return;
    const std::vector<double> joined = std::move(pending.values);
    pending_.erase(origin.i_op);
    observer_->on_op(whole, n_rows, width, joined);
  }
  void forget() { pending_.clear(); }

 private:
  struct Pending {
    std::vector<double> values;
    int n_shards = 0;
  };
  const ops::Op& op(int32_t i) const { return whole_.ops[static_cast<size_t>(i)]; }

  const ops::Plan& whole_;
  const int n_shards_;
  ops::OpObserver* observer_ = nullptr;
  std::mutex mutex_;
  std::map<int32_t, Pending> pending_;  // per op of the whole plan
};

class ShardObserver final : public ops::OpObserver {
 public:
  ShardObserver(const ops::PlanShard& shard, bool is_first, ColumnJoiner& joiner)
      : shard_(shard), is_first_(is_first), joiner_(joiner) {}

  bool wants(const ops::Op& op) override {
    const ops::PlanShard::Origin& origin = origin_of(op);
    return origin.i_op != ops::kNone && (is_first_ || !origin.is_whole) && joiner_.wants(origin.i_op);
  }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t, std::span<const double> values) override {
    joiner_.add(origin_of(op), n_rows, values);
  }

 private:
  const ops::PlanShard::Origin& origin_of(const ops::Op& op) const {
    return shard_.origins[static_cast<size_t>(&op - shard_.plan.ops.data())];
  }

  const ops::PlanShard& shard_;
  const bool is_first_;
  ColumnJoiner& joiner_;
};

// Called before anything is cut, so that a plan that no executor takes is refused in words about the whole.
const ops::Plan& checked(const ops::Plan& plan, const ops::ExecutorOptions& options) {
  ops::check_plan(plan, options);
  return plan;
}

class ShardExecutor final : public ops::Executor {
 public:
  ShardExecutor(const ops::Plan& plan, const ops::ExecutorOptions& options, int n_shards, const MakeShard& make)
      : plan_(plan), options_(options), shards_(ops::shard_plan(checked(plan, options), n_shards)), threads_(n_shards),
        barrier_(n_shards), joiner_(plan, n_shards), n_kept_(static_cast<size_t>(options.n_sequences)) {
    for (const ops::PlanShard& shard : shards_) {
      executors_.push_back(make(shard.plan, static_cast<int>(executors_.size()), barrier_));
      observers_.emplace_back(shard, observers_.empty(), joiner_);
    }
  }

  void run(const ops::Batch& batch) override {
    for (size_t i = 0; i < n_kept_.size(); ++i) n_kept_[i] = n_positions(static_cast<int>(i));
    std::mutex mutex;
    std::exception_ptr failure;  // the first; the others fail for its sake
    ops::RunRequest request = what_all_do(batch.request);
    ops::KnownMasks masks(request.masks == nullptr ? std::span<const ops::AllowedTokens>() : request.masks->allowed());
    if (request.masks != nullptr) request.masks = &masks;
    if (request.observer != nullptr) joiner_.watch_for(request.observer);
    threads_.run(static_cast<int64_t>(executors_.size()), [&](int64_t i, int) {
      try {
        ops::Batch own = batch;
        own.request = request;
        if (request.observer != nullptr) own.request.observer = &observers_[static_cast<size_t>(i)];
        executors_[static_cast<size_t>(i)]->run(own);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (failure == nullptr) failure = std::current_exception();
        barrier_.call_off();
      }
    });
    if (failure == nullptr) return;
    barrier_.reopen();
    joiner_.forget();
    for (size_t i = 0; i < n_kept_.size(); ++i) truncate(static_cast<int>(i), n_kept_[i]);
    std::rethrow_exception(failure);
  }

  // Every shard has all logits, and ranks them, for it may begin with the best token; the first one is asked.
  std::span<const float> logits(int64_t i_output) const override { return executors_.front()->logits(i_output); }
  void read_logits(int64_t i_output, std::span<double> out) const override {
    executors_.front()->read_logits(i_output, out);
  }
  ops::RunSupport supports() const override {  // what all of them do
    ops::RunSupport all = executors_.front()->supports();
    for (const auto& executor : executors_) {
      const ops::RunSupport one = executor->supports();
      all = {std::min(all.n_ranked_max, one.n_ranked_max), all.follows_best && one.follows_best, false};
    }
    return all;
  }
  std::span<const ops::RankedLogit> ranked(int64_t i_output) const override {
    return executors_.front()->ranked(i_output);
  }
  void truncate(int sequence, int64_t n_positions) override { truncate_all(executors_, sequence, n_positions); }
  int64_t n_positions(int sequence) const override { return executors_.front()->n_positions(sequence); }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override;
  size_t cache_bytes() const override { return sum(&ops::Executor::cache_bytes); }
  size_t arena_bytes() const override { return sum(&ops::Executor::arena_bytes); }

 private:
  // Shards do the same, so that each finds the others where it waits for them.
  ops::RunRequest what_all_do(ops::RunRequest request) const {
    const ops::RunSupport all = supports();
    if (request.n_ranked > all.n_ranked_max) request.n_ranked = 0;
    if (request.n_ranked == 0) request.masks = nullptr;  // else they are asked once for all
    request.follows_best = request.follows_best && all.follows_best;
    request.timer = nullptr;
    return request;
  }
  size_t sum(size_t (ops::Executor::*bytes)() const) const {
    size_t all = 0;
    for (const auto& executor : executors_) all += (executor.get()->*bytes)();
    return all;
  }

  const ops::Plan& plan_;
  const ops::ExecutorOptions options_;
  const std::vector<ops::PlanShard> shards_;  // the executors look into their plans
  base::ThreadPool threads_;                  // one a shard: a shard's run waits for the others'
  base::Barrier barrier_;
  ColumnJoiner joiner_;
  std::vector<std::unique_ptr<ops::Executor>> executors_;
  std::vector<ShardObserver> observers_;
  std::vector<int64_t> n_kept_;  // per sequence, before the running batch
};

// The whole's order: of every position all heads, each from the first shard that has it.
void ShardExecutor::visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const {
  std::vector<std::vector<std::byte>> bytes(shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) {
    std::vector<std::byte>& all = bytes[i];
    executors_[i]->visit_cache(
        sequence, [&](std::span<const std::byte> some) { all.insert(all.end(), some.begin(), some.end()); });
  }
  std::vector<size_t> begins(shards_.size(), 0);  // of what the shard has of this layer's keys or values
  const auto n = static_cast<size_t>(n_positions(sequence));
  for (size_t layer = 0; layer < plan_.cache_layers.size(); ++layer) {
    const ops::CacheLayer& whole = plan_.cache_layers[layer];
    for (const auto& [type, dim] :
         {std::pair(options_.cache_k, whole.head_dim), std::pair(options_.cache_v, whole.stored_v_dim())}) {
      const auto head_bytes = static_cast<size_t>(ops::cache_row_bytes(type, dim));
      const auto heads_of = [&](size_t i) { return shards_[i].kv_heads[layer]; };
      const auto row_bytes = [&](size_t i) {
        return static_cast<size_t>(heads_of(i).end - heads_of(i).begin) * head_bytes;
      };
      for (size_t position = 0; position < n; ++position) {
        for (int64_t head = 0; head < whole.n_kv_heads; ++head) {
          size_t i = 0;
          while (head < heads_of(i).begin || head >= heads_of(i).end) ++i;
          const auto own = static_cast<size_t>(head - heads_of(i).begin);
          sink(std::span(bytes[i]).subspan(begins[i] + position * row_bytes(i) + own * head_bytes, head_bytes));
        }
      }
      for (size_t i = 0; i < shards_.size(); ++i) begins[i] += n * row_bytes(i);
    }
  }
  sink(std::span(bytes.front()).subspan(begins.front()));  // the states, which every shard has whole
}

}  // namespace

std::unique_ptr<ops::Executor> make_shard_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                   int n_shards, const MakeShard& make) {
  return std::make_unique<ShardExecutor>(plan, options, n_shards, make);
}

}  // namespace assay::engine
