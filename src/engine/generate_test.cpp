// The loop of generation on a small random model without a vocabulary: limits, the reuse of a
// common beginning, cancelling.
#include "assay/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "assay/error.h"
#include "assay/sampler.h"
#include "assay/score.h"
#include "support/best_known.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

class GenerateTest : public ::testing::Test {
 protected:
  GenerateTest() {
    test::TinyLlama spec;
    spec.d_model = 64;
    spec.d_ff = 96;
    spec.head_dim = 16;
    spec.n_ctx_train = 64;
    test::TinyLlamaWriter(spec).file().write(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false});
    context_options_.n_threads = 1;
    context_options_.numerics = Numerics::f32;
    options_.n_predict = 12;
    options_.sampling.seed = 3;
    options_.sampling.temperature = 2;
  }

  static std::vector<TokenId> tokens(int n) {
    std::vector<TokenId> ids;
    for (int i = 0; i < n; ++i) ids.push_back((i * 37 + 11) % 96);
    return ids;
  }
  std::vector<TokenId> fresh(std::span<const TokenId> prompt) {
    Context context(model_, context_options_);
    return Generator(context).run(prompt, options_).ids;
  }

  test::TempFolder folder_;
  std::shared_ptr<const Model> model_;
  ContextOptions context_options_;
  GenerateOptions options_;
};

TEST_F(GenerateTest, TakesAsManyTokensAsAsked) {
  Context context(model_, context_options_);
  Generator generator(context);
  const Generation g = generator.run(tokens(5), options_);
  EXPECT_EQ(g.ids.size(), 12u);
  EXPECT_EQ(g.finish_reason, FinishReason::length);
  EXPECT_FALSE(g.context_full);
  EXPECT_EQ(g.n_prompt, 5);
  EXPECT_EQ(g.prefill.tokens, 5);
  EXPECT_EQ(g.decode.tokens, 11);  // the last token is drawn, not run
  EXPECT_EQ(g.text, "");
  options_.n_predict = 0;
  EXPECT_TRUE(generator.run(tokens(5), options_).ids.empty());
}

TEST_F(GenerateTest, SameSeedSameAnswerOtherSeedOrRequestAnother) {
  const auto prompt = tokens(4);
  const auto ids = fresh(prompt);
  EXPECT_EQ(fresh(prompt), ids);
  options_.request = 1;
  EXPECT_NE(fresh(prompt), ids);
  options_.request = 0;
  options_.sampling.seed = 4;
  EXPECT_NE(fresh(prompt), ids);
}

TEST_F(GenerateTest, KeepsACommonBeginningAndAnswersAsIfItWereNew) {
  Context context(model_, context_options_);
  Generator generator(context);
  std::vector<TokenId> prompt = tokens(10);
  const Generation first = generator.run(prompt, options_);
  EXPECT_EQ(first.n_prompt_cached, 0);
  const Generation again = generator.run(prompt, options_);
  EXPECT_EQ(again.n_prompt_cached, 9);  // one token is run for its logits
  EXPECT_EQ(again.prefill.tokens, 1);
  EXPECT_EQ(again.ids, first.ids);
  prompt.insert(prompt.end(), first.ids.begin(), first.ids.begin() + 6);
  prompt.push_back(7);
  const Generation longer = generator.run(prompt, options_);
  EXPECT_EQ(longer.n_prompt_cached, 16);
  EXPECT_EQ(longer.ids, fresh(prompt));
  prompt[3] = 95;  // differs early
  const Generation other = generator.run(prompt, options_);
  EXPECT_EQ(other.n_prompt_cached, 3);
  EXPECT_EQ(other.ids, fresh(prompt));
  context.clear();  // someone else used the context
  const Generation anew = generator.run(prompt, options_);
  EXPECT_EQ(anew.n_prompt_cached, 0);
  EXPECT_EQ(anew.ids, other.ids);
}

TEST_F(GenerateTest, EndsWhereTheContextIsFull) {
  context_options_.n_ctx = 16;
  Context context(model_, context_options_);
  options_.n_predict = -1;
  const Generation g = Generator(context).run(tokens(10), options_);
  EXPECT_EQ(g.ids.size(),
            7u);  // 16 positions hold the prompt and six of them; the seventh needs none
  EXPECT_EQ(g.finish_reason, FinishReason::length);
  EXPECT_TRUE(g.context_full);
}

TEST_F(GenerateTest, AFullContextGoesOnAsOneThatNeverHeldTheRest) {
  context_options_.n_ctx = 16;
  options_.n_predict = 40;
  const auto prompt = tokens(10);
  // By hand: before each draw a context of its own reads what is left.
  Sampler sampler(options_.sampling, model_->vocab_size());
  sampler.start(prompt, options_.request);
  std::vector<TokenId> expected, in_context = prompt;
  int64_t n_dropped = 0;
  for (int64_t i = 0; i < options_.n_predict; ++i) {
    if (in_context.size() > 16) {  // 14 of them may go, of which the older half does
      in_context.erase(in_context.begin() + 3, in_context.begin() + 10);
      n_dropped += 7;
    }
    Context context(model_, context_options_);
    context.decode(in_context);
    expected.push_back(sampler.sample(context.logits(), 10 + i));
    sampler.accept(expected.back());
    in_context.push_back(expected.back());
  }
  for (const auto& [n_threads, n_ubatch] : {std::pair(1, 512), std::pair(2, 3), std::pair(3, 1)}) {
    context_options_.n_threads = n_threads;
    context_options_.n_ubatch = n_ubatch;
    Context context(model_, context_options_);
    Generator generator(context);
    generator.set_make_room(drop_older_half(3, 16));
    const Generation g = generator.run(prompt, options_);
    EXPECT_EQ(g.ids, expected);
    EXPECT_EQ(g.n_dropped, n_dropped);
    EXPECT_FALSE(g.context_full);
    EXPECT_EQ(g.n_prompt, 10);
  }
}

TEST(MakeRoom, DropsTheOlderHalfAfterWhatIsKept) {
  std::vector<TokenId> tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  EXPECT_EQ(drop_older_half(2, 9)(tokens, {}), (std::vector<TokenId>{0, 1, 6, 7, 8, 9}));
  EXPECT_EQ(drop_older_half(0, 9)(tokens, {}), (std::vector<TokenId>{5, 6, 7, 8, 9}));
  EXPECT_EQ(drop_older_half(7, 9)(tokens, {}), (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 8, 9}));
  EXPECT_THROW(drop_older_half(8, 9), Error);
  EXPECT_THROW(drop_older_half(-1, 9), Error);
}

TEST_F(GenerateTest, WithoutRoomAnAnswerEnds) {
  context_options_.n_ctx = 16;
  Context context(model_, context_options_);
  Generator generator(context);
  options_.n_predict = -1;
  generator.set_make_room([](std::span<const TokenId> in_context, std::span<const TokenId> answer) {
    EXPECT_EQ(in_context.size(), 17u);
    EXPECT_EQ(answer.size(), 7u);
    EXPECT_EQ(in_context.back(), answer.back());
    return std::vector<TokenId>();
  });
  const Generation g = generator.run(tokens(10), options_);
  EXPECT_EQ(g.ids.size(), 7u);
  EXPECT_TRUE(g.context_full);
  generator.set_make_room({});
}

TEST_F(GenerateTest, RefusesAnOverfullContextBeforeAnyWork) {
  context_options_.n_ctx = 16;
  Context context(model_, context_options_);
  Generator generator(context);
  try {
    generator.run(tokens(17), options_);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::bad_request);
    EXPECT_THAT(e.what(), HasSubstr("17 tokens, the context holds 16"));
  }
  EXPECT_EQ(context.n_past(), 0);
  EXPECT_THROW(generator.run({}, options_), Error);
}

TEST_F(GenerateTest, ACancelledAnswerKeepsWhatThereIs) {
  context_options_.n_ubatch = 4;
  Context context(model_, context_options_);
  Generator generator(context);
  int n_polls = 0;
  const Generation cut = generator.run(tokens(16), options_, {}, [&] { return ++n_polls > 2; });
  EXPECT_EQ(cut.finish_reason, FinishReason::cancelled);
  EXPECT_TRUE(cut.ids.empty());
  EXPECT_EQ(cut.prefill.tokens, 8);
  n_polls = 0;
  const Generation some = generator.run(tokens(16), options_, {}, [&] { return ++n_polls > 8; });
  EXPECT_EQ(some.n_prompt_cached, 8);
  EXPECT_EQ(some.finish_reason, FinishReason::cancelled);
  EXPECT_GT(some.ids.size(), 0u);
  EXPECT_LT(some.ids.size(), 12u);
  const Generation whole = generator.run(tokens(16), options_);
  EXPECT_EQ(whole.finish_reason, FinishReason::length);
  EXPECT_EQ(whole.ids, fresh(tokens(16)));
  EXPECT_TRUE(std::equal(some.ids.begin(), some.ids.end(), whole.ids.begin()));
}

TEST_F(GenerateTest, AHugePenaltyChangesTheAnswer) {  // wired, not only parsed
  options_.sampling.temperature = 0;
  options_.n_predict = 30;
  const auto plain = fresh(tokens(4));
  options_.sampling.frequency_penalty = 1000;
  auto varied = fresh(tokens(4));
  EXPECT_NE(varied, plain);
  std::sort(varied.begin(), varied.end());
  EXPECT_EQ(std::adjacent_find(varied.begin(), varied.end()), varied.end());  // no token twice
}

TEST_F(GenerateTest, SaysWhereTheBestTokenFollows) {
  Context context(model_, context_options_);
  test::BestKnown& executor = test::BestKnown::put_into(context);
  Generator generator(context);
  const auto counts = [&](double temperature, int64_t top_k, int64_t n_predict) {
    options_.sampling.temperature = temperature;
    options_.sampling.top_k = top_k;
    options_.n_predict = n_predict;
    executor.n_runs = executor.n_followed = 0;
    context.clear();
    executor.forget_best();
    const Generation g = generator.run(tokens(5), options_);
    EXPECT_EQ(g.ids.size(), static_cast<size_t>(n_predict));
    return std::pair(executor.n_runs, executor.n_followed);
  };
  EXPECT_EQ(counts(0, 0, 12), std::pair(11, 10));  // after the last run a token is drawn, but not run
  EXPECT_EQ(counts(0, 0, 2), std::pair(1, 0));
  EXPECT_EQ(counts(2, 1, 12), std::pair(11, 10));
  EXPECT_EQ(counts(2, 0, 12), std::pair(11, 0));
  options_.sampling.repeat_penalty = 1.5;
  EXPECT_EQ(counts(0, 0, 12), std::pair(11, 0));
  options_.sampling.repeat_penalty = 1;
  options_.sampling.temperature = 0;
  int n_polls = 0;
  const Generation cut = generator.run(tokens(5), options_, {}, [&] { return ++n_polls > 6; });
  EXPECT_EQ(cut.finish_reason, FinishReason::cancelled);
}

// Where the best logits are found by the run, masks are asked while it is under way, once for every draw.
TEST_F(GenerateTest, MasksAreAskedByTheRunWhereItRanks) {
  options_.sampling.temperature = 0;
  options_.n_predict = 12;
  std::vector<uint64_t> words;
  size_t n_asked = 0;
  options_.mask = [&](std::span<const TokenId> answer) {
    EXPECT_EQ(answer.size(), n_asked++);
    words.assign(static_cast<size_t>(model_->vocab_size() + 63) / 64, 0x1111111111111111u << (answer.size() % 4));
    return answer.size() % 3 == 2 ? std::span<const uint64_t>() : std::span<const uint64_t>(words);
  };
  const auto expected = fresh(tokens(5));
  EXPECT_EQ(n_asked, 12u);
  n_asked = 0;
  Context context(model_, context_options_);
  test::BestKnown& executor = test::BestKnown::put_into(context);
  EXPECT_EQ(Generator(context).run(tokens(5), options_).ids, expected);
  EXPECT_EQ(n_asked, 12u);
  EXPECT_EQ(executor.n_asked, 12);
  EXPECT_EQ(executor.n_followed, 0);
}

TEST_F(GenerateTest, ScoreMatchesTheLogits) {
  context_options_.n_ubatch = 3;
  Context context(model_, context_options_);
  const auto ids = tokens(11);
  const Score s = score(context, ids, 5);
  double nll = 0;
  for (size_t n = 1; n < ids.size(); ++n) {
    Context step(model_, context_options_);
    step.decode(std::span(ids).first(n));
    double sum = 0;
    for (float x : step.logits()) sum += std::exp(static_cast<double>(x));
    nll += std::log(sum) - static_cast<double>(step.logits()[static_cast<size_t>(ids[n])]);
  }
  EXPECT_NEAR(s.mean_nll, nll / 10, 1e-12);
  Context whole(model_, context_options_);
  whole.decode(ids);
  double sum = 0;
  for (float x : whole.logits()) sum += std::exp(static_cast<double>(x));
  EXPECT_NEAR(s.logsumexp, std::log(sum), 1e-12);
  ASSERT_EQ(s.top.size(), 5u);
  EXPECT_EQ(s.top[0].first, argmax(whole.logits()));
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(s.top[i].second, static_cast<double>(whole.logits()[static_cast<size_t>(s.top[i].first)]));
  for (size_t i = 1; i < 5; ++i) EXPECT_GE(s.top[i - 1].second, s.top[i].second);
  EXPECT_EQ(s.logits_digest.size(), 32u);
  EXPECT_EQ(s.kv_digest, whole.kv_digest());
}

TEST(LogSumExp, OfLargeAndSmallNumbers) {
  EXPECT_NEAR(log_sum_exp(std::vector<double>{1000, 1000}), 1000 + std::log(2.0), 1e-12);
  EXPECT_NEAR(log_sum_exp(std::vector<double>{-1000, -1001, -1002}),
              -1000 + std::log(1 + std::exp(-1.0) + std::exp(-2.0)), 1e-12);
  EXPECT_EQ(log_sum_exp(std::vector<double>{3}), 3);
}

}  // namespace
}  // namespace assay
