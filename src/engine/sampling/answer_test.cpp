// One answer: logprobs are of the model's own distribution whatever the sampler does; a mask forbids and changes nothing else.
#include "engine/sampling/answer.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace assay
