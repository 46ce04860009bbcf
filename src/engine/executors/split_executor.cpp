// See split_executor.h.
#include "engine/executors/split_executor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/executors/truncate_all.h"
#include "ops/attention/attention.h"
#include "ops/plan/plan_split.h"

namespace assay::engine {
namespace {

// Announces the ops of a part as those of the whole plan.
class PartObserver final : public ops::OpObserver {
 public:
  PartObserver(const ops::Plan& whole, const ops::PlanPart& part) : whole_(whole), part_(part) {}

  void watch_for(ops::OpObserver* observer) { observer_ = observer; }
  bool wants(const ops::Op& op) override { return observer_->wants(of_whole(op)); }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    observer_->on_op(of_whole(op), n_rows, width, values);
  }

 private:
  const ops::Op& of_whole(const ops::Op& op) const {
    return whole_.ops[static_cast<size_t>(part_.i_op + (&op - part_.plan.ops.data()))];
  }

  const ops::Plan& whole_;
  const ops::PlanPart& part_;
  ops::OpObserver* observer_ = nullptr;
};

class SplitExecutor final : public ops::Executor {
 public:
  SplitExecutor(const ops::Plan& plan, const ops::ExecutorOptions& options, std::span<const int32_t> borders,
                const MakePart& make)
      : parts_(ops::split_plan(plan, borders)), cache_k_(options.cache_k), cache_v_(options.cache_v),
        n_kept_(static_cast<size_t>(options.n_sequences)) {
    for (const ops::PlanPart& part : parts_) {
      executors_.push_back(make(part.plan, static_cast<int>(executors_.size())));
      observers_.emplace_back(plan, part);
    }
  }

  void run(const ops::Batch& batch) override {
    for (size_t i = 0; i < n_kept_.size(); ++i) n_kept_[i] = n_positions(static_cast<int>(i));
    try {
      run_parts(batch);
    } catch (...) {  // parts that ran keep nothing that the others lack
      for (size_t i = 0; i < n_kept_.size(); ++i) truncate(static_cast<int>(i), n_kept_[i]);
      throw;
    }
  }

  std::span<const float> logits(int64_t i_output) const override { return executors_.back()->logits(i_output); }
  void read_logits(int64_t i_output, std::span<double> out) const override {
    executors_.back()->read_logits(i_output, out);
  }
  ops::RunSupport supports() const override {
    const ops::RunSupport last = executors_.back()->supports();
    return {last.n_ranked_max, false, false};
  }
  std::span<const ops::RankedLogit> ranked(int64_t i_output) const override {
    return executors_.back()->ranked(i_output);
  }
  void truncate(int sequence, int64_t n_positions) override { truncate_all(executors_, sequence, n_positions); }
  int64_t n_positions(int sequence) const override { return executors_.back()->n_positions(sequence); }
  // The parts take, share and free the same pages, so that what one says of its tables holds for all.
  ops::CachePages pages() const override {
    ops::CachePages all = executors_.front()->pages();
    for (size_t i = 1; i < executors_.size(); ++i) {
      const ops::CachePages part = executors_[i]->pages();
      if (part.n_positions != all.n_positions || part.n_pages != all.n_pages) return {};
      all.page_bytes += part.page_bytes;
      all.window_bytes += part.window_bytes;
      all.used_bytes += part.used_bytes;
      all.n_free = std::min(all.n_free, part.n_free);
      all.with_states = all.with_states && part.with_states;
    }
    return all;
  }
  int64_t n_pages_needed(int sequence, int64_t n_more) const override {
    return executors_.front()->n_pages_needed(sequence, n_more);
  }
  bool fork(int from, int64_t n_positions, int to) override {
    const auto is_forked = [&](const auto& executor) { return executor->fork(from, n_positions, to); };
    if (pages().n_positions > 0 && std::all_of(executors_.begin(), executors_.end(), is_forked)) return true;
    if (from != to) truncate(to, 0);  // of parts that had a page for it
    return false;
  }
  void forget(int sequence, int64_t begin, int64_t end) override {
    for (const auto& executor : executors_) executor->forget(sequence, begin, end);
  }
  int64_t n_usable(int sequence, int64_t n) const override {
    for (int64_t before = -1; before != n;) {
      before = n;
      for (const auto& executor : executors_) n = executor->n_usable(sequence, n);
    }
    return n;
  }
  bool holds_window(int sequence, int64_t i_page) const override {
    return std::all_of(executors_.begin(), executors_.end(),
                       [&](const auto& executor) { return executor->holds_window(sequence, i_page); });
  }
  bool read_page(int sequence, int64_t i_page, std::span<std::byte> image) const override {
    if (!is_image(image.size())) return false;
    return for_images(
        image, [&](ops::Executor& part, std::span<std::byte> own) { return part.read_page(sequence, i_page, own); });
  }
  bool append_page(int sequence, int64_t n_positions, std::span<const std::byte> image) override {
    return append(sequence, image, [&](ops::Executor& part, std::span<const std::byte> own) {
      return part.append_page(sequence, n_positions, own);
    });
  }
  bool begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image,
                       base::PendingCopies& copies) const override {
    if (!is_image(image.size())) return false;
    return for_images(image, [&](ops::Executor& part, std::span<std::byte> own) {
      return part.begin_read_page(sequence, i_page, own, copies);
    });
  }
  bool begin_append_page(int sequence, int64_t n_positions, std::span<const std::byte> image,
                         base::PendingCopies& copies) override {
    return append(sequence, image, [&](ops::Executor& part, std::span<const std::byte> own) {
      return part.begin_append_page(sequence, n_positions, own, copies);
    });
  }
  bool is_ready(int sequence) const override {
    return std::all_of(executors_.begin(), executors_.end(),
                       [&](const auto& executor) { return executor->is_ready(sequence); });
  }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    const bool has_states =
        std::any_of(parts_.begin(), parts_.end(), [](const ops::PlanPart& part) { return !part.plan.states.empty(); });
    if (!has_states) {
      for (const auto& executor : executors_) executor->visit_cache(sequence, sink);
      return;
    }
    // As of one executor: keys and values of all parts, then their states.
    std::vector<std::vector<std::byte>> bytes(parts_.size());
    for (size_t i = 0; i < parts_.size(); ++i) {
      executors_[i]->visit_cache(sequence, [&](std::span<const std::byte> some) {
        bytes[i].insert(bytes[i].end(), some.begin(), some.end());
      });
    }
    for (size_t i = 0; i < parts_.size(); ++i) sink(std::span(bytes[i]).first(kv_bytes(i, sequence)));
    for (size_t i = 0; i < parts_.size(); ++i) sink(std::span(bytes[i]).subspan(kv_bytes(i, sequence)));
  }
  size_t cache_bytes() const override { return sum(&ops::Executor::cache_bytes); }
  size_t arena_bytes() const override { return sum(&ops::Executor::arena_bytes); }

 private:
  void run_parts(const ops::Batch& batch) {
    run_part(0, batch);
    for (size_t i = 1; i < executors_.size() && !batch.tokens.empty(); ++i) {
      const std::span<const float> rows = executors_[i - 1]->handed();
      std::copy(rows.begin(), rows.end(), executors_[i]->input(static_cast<int64_t>(batch.tokens.size())).begin());
      run_part(i, batch);
    }
  }
  template <class Append>
  bool append(int sequence, std::span<const std::byte> image, const Append& append_part) {
    const int64_t n_before = this->n_positions(sequence);
    if (!is_image(image.size())) return false;
    if (for_images(image, append_part)) return true;
    truncate(sequence, n_before);
    return false;
  }
  bool is_image(size_t bytes) const {
    const ops::CachePages all = pages();
    return bytes == all.page_bytes || bytes == all.page_bytes - all.window_bytes;
  }
  // Of a page: what each part has of it. Whether all said yes.
  template <class Image, class Visit>
  bool for_images(Image image, const Visit& visit) const {
    const bool is_whole = image.size() == pages().page_bytes;
    for (const auto& executor : executors_) {
      const ops::CachePages part = executor->pages();
      const size_t bytes = is_whole ? part.page_bytes : part.page_bytes - part.window_bytes;
      if (!visit(*executor, image.first(bytes))) return false;
      image = image.subspan(bytes);
    }
    return true;
  }
  // The last part has the logits.
  void run_part(size_t i, ops::Batch batch) {
    ops::RunRequest& request = batch.request;
    const ops::RunRequest asked = std::exchange(request, {});
    if (asked.observer != nullptr) {
      observers_[i].watch_for(asked.observer);
      request.observer = &observers_[i];
    }
    if (i + 1 == executors_.size()) {
      request.n_ranked = asked.n_ranked;
      request.masks = asked.masks;
    }
    executors_[i]->run(batch);
  }
  size_t kv_bytes(size_t i_part, int sequence) const {
    int64_t bytes = 0;
    for (const ops::CacheLayer& layer : parts_[i_part].plan.cache_layers) {
      bytes += layer.n_kv_heads *
               (ops::cache_row_bytes(cache_k_, layer.head_dim) + ops::cache_row_bytes(cache_v_, layer.stored_v_dim()));
    }
    return static_cast<size_t>(bytes * n_positions(sequence));
  }
  size_t sum(size_t (ops::Executor::*bytes)() const) const {
    size_t all = 0;
    for (const auto& executor : executors_) all += (executor.get()->*bytes)();
    return all;
  }

  const std::vector<ops::PlanPart> parts_;  // the executors look into their plans
  const ops::CacheType cache_k_, cache_v_;
  std::vector<std::unique_ptr<ops::Executor>> executors_;
  std::vector<PartObserver> observers_;
  std::vector<int64_t> n_kept_;  // per sequence, before the running batch
};

}  // namespace

std::unique_ptr<ops::Executor> make_split_executor(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                   std::span<const int32_t> borders, const MakePart& make) {
  return std::make_unique<SplitExecutor>(plan, options, borders, make);
}

}  // namespace assay::engine
