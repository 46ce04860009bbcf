// An executor that does what another one does: for those that change a part of that.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ops/plan/executor.h"

namespace assay::ops {

class ForwardingExecutor : public Executor {
 public:
  explicit ForwardingExecutor(std::unique_ptr<Executor> inner) : inner_(std::move(inner)) {}
  void run(const Batch& batch) override { inner_->run(batch); }
  std::span<const float> logits(int64_t i_output) const override { return inner_->logits(i_output); }
  void read_logits(int64_t i_output, std::span<double> out) const override { inner_->read_logits(i_output, out); }
  RunSupport supports() const override { return inner_->supports(); }
  std::span<const RankedLogit> ranked(int64_t i_output) const override { return inner_->ranked(i_output); }
  std::span<float> input(int64_t n_tokens) override { return inner_->input(n_tokens); }
  std::span<const float> handed() const override { return inner_->handed(); }
  void truncate(int sequence, int64_t n_positions) override { inner_->truncate(sequence, n_positions); }
  int64_t n_positions(int sequence) const override { return inner_->n_positions(sequence); }
  CachePages pages() const override { return inner_->pages(); }
  int64_t n_pages_needed(int sequence, int64_t n_more) const override {
    return inner_->n_pages_needed(sequence, n_more);
  }
  bool fork(int from, int64_t n_positions, int to) override { return inner_->fork(from, n_positions, to); }
  void forget(int sequence, int64_t begin, int64_t end) override { inner_->forget(sequence, begin, end); }
  int64_t n_usable(int sequence, int64_t n) const override { return inner_->n_usable(sequence, n); }
  bool holds_window(int sequence, int64_t i_page) const override { return inner_->holds_window(sequence, i_page); }
  bool read_page(int sequence, int64_t i_page, std::span<std::byte> image) const override {
    return inner_->read_page(sequence, i_page, image);
  }
  bool append_page(int sequence, int64_t n_positions, std::span<const std::byte> image) override {
    return inner_->append_page(sequence, n_positions, image);
  }
  bool begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image,
                       base::PendingCopies& copies) const override {
    return inner_->begin_read_page(sequence, i_page, image, copies);
  }
  bool begin_append_page(int sequence, int64_t n_positions, std::span<const std::byte> image,
                         base::PendingCopies& copies) override {
    return inner_->begin_append_page(sequence, n_positions, image, copies);
  }
  bool is_ready(int sequence) const override { return inner_->is_ready(sequence); }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override {
    inner_->visit_cache(sequence, sink);
  }
  std::vector<KernelUse> kernels_of(int32_t i_op) const override { return inner_->kernels_of(i_op); }
  size_t cache_bytes() const override { return inner_->cache_bytes(); }
  size_t arena_bytes() const override { return inner_->arena_bytes(); }

 protected:
  Executor& inner() noexcept { return *inner_; }
  const Executor& inner() const noexcept { return *inner_; }

 private:
  const std::unique_ptr<Executor> inner_;
};

}  // namespace assay::ops
