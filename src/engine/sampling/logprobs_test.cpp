// Log-probabilities against sums made here with libm, on a small model with a vocabulary of bytes.
#include "assay/logprobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>

#include "assay/error.h"
#include "assay/generate.h"
#include "assay/score.h"
#include "engine/sampling/best_logits.h"
#include "support/shared_data.h"

namespace assay {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(BestLogits, DescendAndTiesGoToTheLowestId) {
  const std::vector<double> logits = {1, 5, kNaN, 5, -kInfinity, 7, 5};
  EXPECT_THAT(engine::best_logits(logits, 3), ElementsAre(Pair(5, 7), Pair(1, 5), Pair(3, 5)));
  EXPECT_THAT(engine::best_logits(logits, 0), ElementsAre());
  EXPECT_EQ(engine::best_logits(logits, 100).size(), 6u);  // all but the NaN
  EXPECT_EQ(engine::best_logits(logits, 100).back(), std::pair(TokenId{4}, -kInfinity));
}

TEST(Logprobs, AreLogitsLessTheSumOfAll) {
  const std::vector<double> logits = {0, std::log(2.0), std::log(5.0), -kInfinity};
  const TokenLogprobs place = token_logprobs(logits, 0, 2);
  EXPECT_NEAR(place.logprob, std::log(1.0 / 8), 1e-15);
  ASSERT_EQ(place.top.size(), 2u);
  EXPECT_EQ(place.top[0].first, 2);
  EXPECT_NEAR(place.top[0].second, std::log(5.0 / 8), 1e-15);
  EXPECT_EQ(token_logprobs(logits, 3, 0).logprob, -kInfinity);
}

TEST(Logprobs, JsonHasNullForWhatIsNoNumber) {
  const std::vector<TokenLogprobs> places = {{7, kNaN, {}}, {8, -0.5, {{9, -kInfinity}}}};
  EXPECT_EQ(
      logprobs_json(nullptr, places),
      R"({"content":[{"id":7,"logprob":null,"top_logprobs":[]},{"id":8,"logprob":-0.5,"top_logprobs":[{"id":9,"logprob":null}]}]})");
}

class LogprobsOfAnswers : public ::testing::Test {
 protected:
  const std::string path_ = test::shared("goldens/tiny/llama.gguf").string();
  static ContextOptions options() {
    ContextOptions o;
    o.n_threads = 1;
    o.n_ctx = 64;
    return o;
  }
};

TEST_F(LogprobsOfAnswers, ComeFromTheLogitsBeforeSampling) {
  ASSAY_REQUIRE_FILE(path_);
  const auto model = Model::load(path_);
  const std::vector<TokenId> prompt = model->tokenizer()->encode("The sea", {});
  Context context(model, options());
  GenerateOptions generate;
  generate.n_predict = 6;
  generate.n_top_logprobs = 3;
  generate.stop_at_end = false;
  generate.sampling.temperature = 3;
  generate.sampling.repeat_penalty = 1.8;  // steps that must not show
  const Generation g = Generator(context).run(prompt, generate);
  ASSERT_EQ(g.logprobs.size(), 6u);
  Context other(model, options());
  std::vector<TokenId> ids = prompt;
  for (size_t i = 0; i < g.ids.size(); ++i) {
    other.clear();
    other.decode(ids);
    const std::span<const float> logits = other.logits();
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    EXPECT_EQ(g.logprobs[i].id, g.ids[i]);
    EXPECT_NEAR(g.logprobs[i].logprob, static_cast<double>(logits[static_cast<size_t>(g.ids[i])]) - std::log(sum),
                1e-12);
    ASSERT_EQ(g.logprobs[i].top.size(), 3u);
    EXPECT_EQ(g.logprobs[i].top[0].first, argmax(logits));
    ids.push_back(g.ids[i]);
  }
  generate.n_top_logprobs = -1;  // asking changes no draw
  context.clear();
  EXPECT_EQ(Generator(context).run(prompt, generate).ids, g.ids);
  generate.n_top_logprobs = model->vocab_size() + 1;
  EXPECT_THROW(Generator(context).run(prompt, generate), Error);
}

TEST_F(LogprobsOfAnswers, OfAWholeTextAddUpToItsLikelihood) {
  ASSAY_REQUIRE_FILE(path_);
  const auto model = Model::load(path_);
  Context context(model, options());
  const std::vector<TokenId> ids = model->tokenizer()->encode("The sea is vast", {});
  const Score s = score(context, ids, 4, Places::all);
  ASSERT_EQ(s.places.size(), ids.size());
  EXPECT_TRUE(std::isnan(s.places[0].logprob));
  double sum = 0;
  for (size_t i = 1; i < ids.size(); ++i) {
    EXPECT_EQ(s.places[i].id, ids[i]);
    EXPECT_EQ(s.places[i].top.size(), 4u);
    sum -= s.places[i].logprob;
  }
  EXPECT_NEAR(s.mean_nll, sum / static_cast<double>(ids.size() - 1), 1e-12);
  EXPECT_TRUE(score(context, ids, 4).places.empty());
}

TEST_F(LogprobsOfAnswers, JsonNamesTokensAndTheirBytes) {
  ASSAY_REQUIRE_FILE(path_);
  const auto model = Model::load(path_);
  const Tokenizer& tokenizer = *model->tokenizer();
  std::optional<TokenId> part, letter;  // a byte that is no character, and one that is
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.piece(id) == "\xE2") part = id;
    if (tokenizer.piece(id) == "a") letter = id;
  }
  ASSERT_TRUE(part && letter);
  EXPECT_EQ(token_label(tokenizer, *part), "<0xE2>");
  const std::vector<TokenLogprobs> places = {{*part, -1.25, {{*letter, -0.1}}}};
  const json::value v = json::parse(logprobs_json(&tokenizer, places));
  const json::value& first = v.at("content").at(0);
  EXPECT_EQ(first.at("token").as_string(), "<0xE2>");
  EXPECT_EQ(first.at("bytes"), json::array{0xE2});
  EXPECT_EQ(first.at("logprob").as_double(), -1.25);
  EXPECT_EQ(first.at("top_logprobs").at(0).at("token").as_string(), "a");
  EXPECT_EQ(first.at("top_logprobs").at(0).at("bytes"), json::array{97});
  EXPECT_EQ(first.at("top_logprobs").at(0).at("logprob").as_double(), -0.1);
}

}  // namespace
}  // namespace assay
