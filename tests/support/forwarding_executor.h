// An executor that does what another one does: for tests that change a part of that.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "ops/plan/executor.h"

namespace assay::test {

class Forwarding : public ops::Executor {
 public:
  explicit Forwarding(std::unique_ptr<ops::Executor> inner) : inner_(std::move(inner)) {}
  void run(const ops::Batch& batch) override { inner_->run(batch); }
  std::span<const float> logits(int64_t i) const override { return inner_->logits(i); }
  void read_logits(int64_t i, std::span<double> out) const override { inner_->read_logits(i, out); }
  bool set_n_ranked(int64_t n) override { return inner_->set_n_ranked(n); }
  std::span<const ops::RankedLogit> ranked(int64_t i) const override { return inner_->ranked(i); }
  bool set_follows_best(bool follows) override { return inner_->set_follows_best(follows); }
  std::span<float> input(int64_t n) override { return inner_->input(n); }
  std::span<const float> handed() const override { return inner_->handed(); }
  void truncate(int sequence, int64_t n) override { inner_->truncate(sequence, n); }
  int64_t n_positions(int sequence) const override { return inner_->n_positions(sequence); }
  void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const override { inner_->visit_cache(sequence, sink); }
  void set_observer(ops::OpObserver* observer) override { inner_->set_observer(observer); }
  size_t cache_bytes() const override { return inner_->cache_bytes(); }
  size_t arena_bytes() const override { return inner_->arena_bytes(); }

 private:
  std::unique_ptr<ops::Executor> inner_;
};

}  // namespace assay::test
