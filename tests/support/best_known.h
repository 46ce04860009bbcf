// For tests: the CPU's executor with the best token of every output, of those that masks leave, and what it was told of
// the token to come.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "assay/sampler.h"
#include "engine/context_state.h"
#include "ops/plan/forwarding_executor.h"

namespace assay::test {

class BestKnown final : public ops::ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;

  // In the place of the context's executor, which it forwards to.
  static BestKnown& put_into(Context& context) {
    auto made = std::make_unique<BestKnown>(std::move(context.state().executor));
    BestKnown& executor = *made;
    context.state().executor = std::move(made);
    return executor;
  }

  void run(const ops::Batch& batch) override {
    if (follows_) {
      EXPECT_EQ(batch.tokens[0], best_.front().token);
    }
    follows_ = batch.request.follows_best;
    n_ranked_ = batch.request.n_ranked;
    EXPECT_LE(n_ranked_, 1);
    ForwardingExecutor::run(batch);
    n_runs += batch.tokens.size() == 1;
    n_followed += follows_;
    EXPECT_TRUE(!follows_ || (batch.tokens.size() == 1 && n_ranked_ == 1));
    best_.clear();
    const auto n_outputs = std::count(batch.outputs.begin(), batch.outputs.end(), uint8_t{1});
    for (int64_t i = 0; i < n_outputs; ++i) best_.push_back(best_of(logits(i), {}));
    if (n_ranked_ == 0 || batch.request.masks == nullptr) return;
    ++n_asked;  // the outputs are there before
    for (const ops::AllowedTokens& of : batch.request.masks->allowed()) {
      best_[static_cast<size_t>(of.i_output)] = best_of(logits(of.i_output), of.words);
    }
  }
  ops::RunSupport supports() const override { return {.n_ranked_max = 1, .follows_best = true, .timer = false}; }
  std::span<const ops::RankedLogit> ranked(int64_t i_output) const override {
    return {&best_[static_cast<size_t>(i_output)], static_cast<size_t>(n_ranked_)};
  }
  void forget_best() { follows_ = false; }  // an answer was cut, and what follows is of another one

  int n_runs = 0, n_followed = 0;  // of one token; of these with another to come
  int n_asked = 0;                 // runs that asked masks

 private:
  static ops::RankedLogit best_of(std::span<const float> logits, std::span<const uint64_t> words) {
    std::vector<float> left(logits.begin(), logits.end());
    for (size_t id = 0; !words.empty() && id < left.size(); ++id) {
      if ((words[id / 64] >> (id % 64) & 1) == 0) left[id] = -std::numeric_limits<float>::infinity();
    }
    const TokenId best = argmax(left);
    return {best, logits[static_cast<size_t>(best)]};
  }

  std::vector<ops::RankedLogit> best_;  // by output
  int64_t n_ranked_ = 0;
  bool follows_ = false;
};

}  // namespace assay::test
