// One answer: logprobs are of the model's own distribution whatever the sampler does; a mask forbids and changes
// nothing else.
#include "engine/sampling/answer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "assay/error.h"
#include "assay/generate.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

class AnswerTest : public ::testing::Test {
 protected:
  AnswerTest() {
    test::TinyLlama spec;
    spec.d_model = 64;
    spec.d_ff = 96;
    spec.head_dim = 16;
    test::TinyLlamaWriter(spec).file().write(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false});
    context_options_.n_threads = 1;
    options_.n_predict = 8;
    options_.n_top_logprobs = 2;
    options_.sampling.seed = 3;
    options_.sampling.temperature = 2;
  }
  Generation run() {
    Context context(model_, context_options_);
    return Generator(context).run(prompt_, options_);
  }

  test::TempFolder folder_;
  std::shared_ptr<const Model> model_;
  ContextOptions context_options_;
  GenerateOptions options_;
  std::vector<TokenId> prompt_ = {3, 1, 4, 1, 5};
};

TEST_F(AnswerTest, LogprobsAreThoseOfTheModelWhateverIsDrawn) {
  options_.sampling.repeat_penalty = 1.3;
  options_.sampling.logit_bias = {{7, 2.0f}};
  const Generation g = run();
  ASSERT_EQ(g.logprobs.size(), 8u);
  Context context(model_, context_options_);
  std::vector<TokenId> ids = prompt_;
  for (size_t i = 0; i < g.ids.size(); ++i) {
    context.clear();
    context.decode(ids);
    const TokenLogprobs expected = token_logprobs(context.logits_double(), g.ids[i], 2);
    EXPECT_EQ(g.logprobs[i].id, g.ids[i]);
    EXPECT_EQ(g.logprobs[i].logprob, expected.logprob);
    EXPECT_EQ(g.logprobs[i].top, expected.top);
    ids.push_back(g.ids[i]);
  }
  options_.n_top_logprobs = -1;
  const Generation without = run();
  EXPECT_EQ(without.ids, g.ids);
  EXPECT_TRUE(without.logprobs.empty());
}

TEST_F(AnswerTest, AMaskForbidsAndChangesNothingElse) {
  const Generation free = run();
  std::vector<uint64_t> all(2, ~uint64_t{0});
  options_.mask = [&](std::span<const TokenId>) { return std::span<const uint64_t>(all); };
  EXPECT_EQ(run().ids, free.ids);
  std::vector<uint64_t> even(2, 0x5555555555555555u);
  size_t n_asked = 0;
  options_.mask = [&](std::span<const TokenId> answer) {
    EXPECT_EQ(answer.size(), n_asked++);
    return std::span<const uint64_t>(even);
  };
  for (const TokenId id : run().ids) EXPECT_EQ(id % 2, 0);
  EXPECT_EQ(n_asked, 8u);
  std::vector<uint64_t> none(2, 0);
  options_.mask = [&](std::span<const TokenId>) { return std::span<const uint64_t>(none); };
  EXPECT_THROW(run(), Error);
}

// The best of what a mask leaves give the draws that all logits give, whoever ranked them; the mask is asked once a
// draw.
TEST_F(AnswerTest, LookingAheadChangesNoDraw) {
  options_.n_top_logprobs = -1;
  for (const int64_t top_k : {1, 3, 40, 0}) {
    options_.sampling.top_k = top_k;
    options_.sampling.temperature = top_k == 1 ? 0 : 2;
    size_t n_asked = 0;
    std::vector<uint64_t> words(2);
    options_.mask = [&](std::span<const TokenId> answer) {
      ++n_asked;
      words = {0x1F0F0123456789ABu >> (answer.size() % 40), answer.size() % 3};
      return answer.size() % 4 == 3 ? std::span<const uint64_t>() : std::span<const uint64_t>(words);
    };
    engine::Answer plain(*model_, options_), ahead(*model_, options_);
    const int64_t n = ahead.n_ranked();
    EXPECT_EQ(n, top_k);
    plain.start(prompt_);
    ahead.start(prompt_);
    Context context(model_, context_options_);
    context.decode(prompt_);
    for (int i = 0; i < 20; ++i) {
      const std::span<const float> logits = context.logits();
      EXPECT_FALSE(ahead.has_looked_ahead());
      const std::span<const uint64_t> allowed = ahead.look_ahead();
      EXPECT_TRUE(ahead.has_looked_ahead());
      EXPECT_EQ(ahead.look_ahead().data(), allowed.data());
      std::vector<RankedLogit> best;
      for (TokenId id = 0; id < static_cast<TokenId>(logits.size()); ++id) {
        const auto at = static_cast<size_t>(id);
        if (allowed.empty() || (allowed[at / 64] >> (at % 64) & 1) != 0) best.push_back({id, logits[at]});
      }
      std::stable_sort(best.begin(), best.end(),
                       [](const RankedLogit& a, const RankedLogit& b) { return a.logit > b.logit; });
      best.resize(std::min(best.size(), static_cast<size_t>(n)));
      const TokenId found = n > 0 ? ahead.draw(best) : ahead.draw(logits);
      EXPECT_EQ(plain.draw(logits), found) << i << " of " << top_k;
      context.decode({&found, 1});
    }
    EXPECT_EQ(n_asked, 40u);
  }
}

TEST_F(AnswerTest, WhatAMaskThrowsTheDrawThrows) {
  options_.n_top_logprobs = -1;
  int n_asked = 0;
  options_.mask = [&](std::span<const TokenId>) -> std::span<const uint64_t> {
    ++n_asked;
    throw Error(Errc::bad_request, "too many readings");
  };
  engine::Answer answer(*model_, options_);
  EXPECT_TRUE(answer.look_ahead().empty());
  const std::vector<RankedLogit> best = {{1, 0.5f}};
  EXPECT_THROW(answer.draw(best), Error);
  EXPECT_EQ(n_asked, 1);
  static constexpr uint64_t kBehind[2] = {0, uint64_t{1} << 63};  // the vocabulary has fewer tokens
  options_.mask = [](std::span<const TokenId>) { return std::span<const uint64_t>(kBehind); };
  engine::Answer nothing(*model_, options_);
  EXPECT_TRUE(nothing.look_ahead().empty());
  EXPECT_THROW(nothing.draw(best), Error);
}

}  // namespace
}  // namespace assay
