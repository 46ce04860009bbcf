// Perplexity against Hugging Face transformers' float64 figures of tiny random models (tests/data/goldens/tiny), and
// its rules: which tokens count, what a chunk sees, what is refused.
#include "assay/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "assay/error.h"
#include "assay/score.h"
#include "support/goldens.h"
#include "support/logits.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

constexpr double kOfTransformers = 4e-4;  // of transformers' own tables in float32: see tiny_golden_test

struct Tiny {
  test::TinyGolden golden;
  std::shared_ptr<const Model> model;
};

Tiny load_tiny(const std::string& name) {
  return {test::read_tiny_golden(test::shared("goldens/tiny/" + name + ".json")),
          Model::load(test::shared("goldens/tiny/" + name + ".gguf").string(), {.tokenizer = false})};
}

Context make_context(const std::shared_ptr<const Model>& model, int64_t n_outputs_max = 0,
                     Numerics numerics = Numerics::f32) {
  ContextOptions options;
  options.numerics = numerics;
  options.cache_k = options.cache_v = KvType::f32;
  options.n_threads = 1;
  options.n_ctx = 64;
  options.n_outputs_max = n_outputs_max;
  return Context(model, options);
}

std::vector<TokenId> repeated(const std::vector<TokenId>& ids,
                              size_t n_chunk) {  // the first n_chunk tokens, twice, and a rest that is left over
  std::vector<TokenId> text(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n_chunk));
  text.insert(text.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n_chunk));
  text.insert(text.end(), ids.begin(), ids.begin() + 2);
  return text;
}

class PerplexityGolden : public ::testing::TestWithParam<int64_t> {};

TEST_P(PerplexityGolden, ScoresTheSecondHalfOfEachChunkFromAnEmptyContext) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/tiny/llama.gguf"));
  const Tiny tiny = load_tiny("llama");
  for (const size_t n_chunk : {3u, 20u, 27u, 40u}) {
    Context context = make_context(tiny.model, GetParam());
    const auto r = perplexity(context, nullptr, repeated(tiny.golden.ids, n_chunk),
                              {.n_chunk = static_cast<int64_t>(n_chunk), .keep_tokens = true});
    // Position p predicts token p + 1; positions n_chunk / 2 to n_chunk - 2 count, in both chunks alike.
    std::vector<double> nll;
    for (size_t p = n_chunk / 2; p + 1 < n_chunk; ++p) nll.push_back(tiny.golden.nll[p]);
    double sum = 0, squares = 0;
    for (const double x : nll) sum += 2 * x, squares += 2 * x * x;
    const double n = 2 * static_cast<double>(nll.size()), mean = sum / n;
    const double error = std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1));
    EXPECT_EQ(r.n_tokens, static_cast<int64_t>(2 * n_chunk + 2));
    EXPECT_EQ(r.n_chunks, 2);
    EXPECT_FALSE(r.cancelled());
    ASSERT_EQ(r.n_scored, 2 * static_cast<int64_t>(nll.size()));
    EXPECT_EQ(r.n_not_finite, 0);
    EXPECT_NEAR(r.mean_nll, mean, kOfTransformers);
    EXPECT_NEAR(r.mean_nll_error, error, kOfTransformers);
    EXPECT_NEAR(r.perplexity / std::exp(mean), 1, kOfTransformers);
    EXPECT_NEAR(r.perplexity_error, r.perplexity * r.mean_nll_error, 1e-9);
    EXPECT_FALSE(r.compared);
    ASSERT_EQ(r.tokens.size(), static_cast<size_t>(r.n_scored));
    for (size_t i = 0; i < r.tokens.size(); ++i) {
      const size_t chunk = i / nll.size(), place = i % nll.size() + n_chunk / 2 + 1;
      EXPECT_EQ(r.tokens[i].index, static_cast<int64_t>(chunk * n_chunk + place));
      EXPECT_EQ(r.tokens[i].id, tiny.golden.ids[place]);
      EXPECT_NEAR(r.tokens[i].nll, nll[i % nll.size()], kOfTransformers);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RowsHeld, PerplexityGolden, ::testing::Values(0, 1, 7));

double divergence(const std::vector<double>& base, const std::vector<double>& logits) {
  const double base_sum = test::log_sum_exp(base), sum = test::log_sum_exp(logits);
  double result = 0;
  for (size_t i = 0; i < base.size(); ++i)
    result += std::exp(base[i] - base_sum) * ((base[i] - base_sum) - (logits[i] - sum));
  return result;
}

TEST(Perplexity, DivergenceIsThatOfTransformersLogits) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/tiny/llama.gguf"));
  const Tiny ours = load_tiny("llama-rope-linear"), base = load_tiny("llama");
  ASSERT_EQ(ours.golden.ids, base.golden.ids);
  Context context = make_context(ours.model, 5), base_context = make_context(base.model, 3);
  const auto r =
      perplexity(context, &base_context, repeated(base.golden.ids, 40), {.n_chunk = 40, .keep_tokens = true});
  ASSERT_TRUE(r.compared);
  ASSERT_EQ(r.n_scored, 38);
  double change = 0, top = 0, ratio = 0;
  for (size_t p = 20; p < 39; ++p) {
    change += (std::exp(-ours.golden.nll[p]) - std::exp(-base.golden.nll[p])) / 19;
    ratio += (ours.golden.nll[p] - base.golden.nll[p]) / 19;
  }
  EXPECT_NEAR(r.probability_change.mean, change, kOfTransformers);
  EXPECT_NEAR(r.log_ratio, ratio, kOfTransformers);
  EXPECT_NEAR(r.log_ratio, std::log(r.perplexity / r.base_perplexity), 1e-12);
  // The goldens hold whole rows of the last three positions; the last of them scores nothing.
  for (size_t i = 0; i < 2; ++i) {
    const double expected = divergence(base.golden.logits_last3[i], ours.golden.logits_last3[i]);
    const bool same = test::best_of(std::span<const double>(base.golden.logits_last3[i])).token ==
                      test::best_of(std::span<const double>(ours.golden.logits_last3[i])).token;
    for (const size_t chunk : {0u, 1u}) {
      const PerplexityToken& token = r.tokens[chunk * 19 + 17 + i];
      EXPECT_NEAR(token.kl_divergence / expected, 1, 2e-3);
      EXPECT_EQ(token.same_top, same);
      EXPECT_NEAR(token.base_nll, base.golden.nll[37 + i], kOfTransformers);
    }
  }
  std::vector<double> all;
  for (const PerplexityToken& token : r.tokens) {
    all.push_back(token.kl_divergence);
    top += token.same_top ? 1.0 / 38 : 0.0;
  }
  EXPECT_NEAR(r.same_top, top, 1e-12);
  EXPECT_NEAR(r.same_top_error, std::sqrt(top * (1 - top) / 37), 1e-12);
  EXPECT_EQ(r.kl_divergence.largest, *std::max_element(all.begin(), all.end()));
  EXPECT_GT(r.kl_divergence.smallest, 0);
}

// A small random model of our own, for what needs no reference.
class PerplexityRules : public ::testing::Test {
 protected:
  PerplexityRules() { model_ = make_model({}, "tiny.gguf"); }
  std::shared_ptr<const Model> make_model(test::TinyLlama spec, const std::string& name) {
    spec.d_model = 64;
    spec.d_ff = 96;
    spec.head_dim = 16;
    test::TinyLlamaWriter(spec).file().write(folder_ / name);
    return Model::load((folder_ / name).string(), {.tokenizer = false});
  }
  static std::vector<TokenId> text(int n) {
    std::vector<TokenId> ids;
    for (int i = 0; i < n; ++i) ids.push_back((i * i * 5 + 11 * i + 3) % 96);
    return ids;
  }
  std::string refusal(Context& context, Context* base, const std::vector<TokenId>& ids,
                      const PerplexityOptions& options) {
    try {
      perplexity(context, base, ids, options);
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::bad_request);
      return e.what();
    }
    return "no refusal";
  }
  test::TempFolder folder_;
  std::shared_ptr<const Model> model_;
};

TEST_F(PerplexityRules, TheFirstTokenOfEachChunkIsReplaced) {
  Context context = make_context(model_);
  std::vector<TokenId> ids = text(32);
  const double own = perplexity(context, nullptr, ids, {.n_chunk = 16}).mean_nll;
  const double replaced = perplexity(context, nullptr, ids, {.n_chunk = 16, .first_token = 90}).mean_nll;
  ids[0] = ids[16] = 90;
  EXPECT_NE(own, replaced);
  EXPECT_EQ(perplexity(context, nullptr, ids, {.n_chunk = 16}).mean_nll, replaced);
}

TEST_F(PerplexityRules, TheSameModelDivergesByNothing) {
  Context context = make_context(model_), base = make_context(model_, 2);
  const auto r = perplexity(context, &base, text(48), {.n_chunk = 16});
  EXPECT_EQ(r.kl_divergence.largest, 0);
  EXPECT_EQ(r.probability_change.rms, 0);
  EXPECT_EQ(r.same_top, 1);
  EXPECT_EQ(r.log_ratio, 0);
  EXPECT_EQ(r.perplexity, r.base_perplexity);
}

TEST_F(PerplexityRules, ModesOfOneModelAreClose) {
  Context context = make_context(model_, 0, Numerics::f32), base = make_context(model_, 0, Numerics::oracle);
  const auto r = perplexity(context, &base, text(48), {.n_chunk = 16});
  EXPECT_GT(r.kl_divergence.largest, 0);
  EXPECT_LT(r.kl_divergence.largest, 1e-9);
}

TEST_F(PerplexityRules, ChunksAreCountedAndCancelledWhole) {
  Context context = make_context(model_, 3);
  const auto two = perplexity(context, nullptr, text(70), {.n_chunk = 16, .n_chunks_max = 2});
  EXPECT_EQ(two.n_chunks, 2);
  EXPECT_FALSE(two.cancelled());
  std::vector<std::pair<int64_t, int64_t>> steps;
  std::vector<double> so_far;
  PerplexityOptions options{.n_chunk = 16};
  options.progress = [&](int64_t done, int64_t total, double value) {
    steps.emplace_back(done, total);
    so_far.push_back(value);
  };
  options.cancelled = [&] { return steps.size() > 9; };  // four reports a chunk: within the third
  const auto cut = perplexity(context, nullptr, text(70), options);
  EXPECT_TRUE(cut.cancelled());
  EXPECT_EQ(cut.n_chunks, 2);
  EXPECT_EQ(cut.n_chunks_asked, 4);
  EXPECT_EQ(cut.perplexity, two.perplexity);
  EXPECT_EQ(cut.n_scored, two.n_scored);
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(steps.front(), (std::pair<int64_t, int64_t>(8, 60)));
  EXPECT_TRUE(std::isnan(so_far.front()));
  EXPECT_NEAR(so_far.back(), two.perplexity, 1e-9);
  EXPECT_EQ(perplexity(context, nullptr, text(70), {.n_chunk = 16, .cancelled = [] { return true; }}).n_chunks, 0);
}

TEST_F(PerplexityRules, WhatCannotBeServedIsRefusedByName) {
  Context context = make_context(model_);
  EXPECT_THAT(refusal(context, nullptr, text(31), {.n_chunk = 16}),
              HasSubstr("two chunks or more, 32 tokens; found one of 31"));
  EXPECT_THAT(refusal(context, nullptr, {}, {.n_chunk = 16}), HasSubstr("found one of 0"));
  EXPECT_THAT(refusal(context, nullptr, text(31), {.n_chunk = 2}), HasSubstr("3 tokens or more, found 2"));
  EXPECT_THAT(refusal(context, nullptr, text(31), {.n_chunk = INT64_MAX}), HasSubstr("two chunks"));
  EXPECT_THAT(refusal(context, nullptr, text(300), {.n_chunk = 65}),
              HasSubstr("a context of as many, found one of 64"));
  EXPECT_THAT(refusal(context, nullptr, {1, 2, 3, 4, 5, 96}, {.n_chunk = 3}),
              HasSubstr("token 5 of the text: needs an id from 0 to 95, found 96"));
  EXPECT_THAT(refusal(context, nullptr, text(32), {.n_chunk = 3, .first_token = -1}),
              HasSubstr("first token of the chunks"));
  EXPECT_THAT(refusal(context, &context, text(32), {.n_chunk = 16}), HasSubstr("its own base"));
  test::TinyLlama other;
  other.vocab_size = 97;
  Context base = make_context(make_model(other, "other.gguf"));
  EXPECT_THAT(refusal(context, &base, text(32), {.n_chunk = 16}), HasSubstr("which has 96 tokens, found 97"));
}

TEST_F(PerplexityRules, ThreadsAndRowsHeldChangeNoBit) {
  Context one = make_context(model_, 1), base = make_context(model_, 4, Numerics::oracle);
  ContextOptions many_options = one.options();
  many_options.n_threads = 3;
  many_options.n_outputs_max = 6;
  Context many(model_, many_options);
  const auto a = perplexity(one, &base, text(48), {.n_chunk = 24}),
             b = perplexity(many, &base, text(48), {.n_chunk = 24});
  EXPECT_EQ(a.mean_nll, b.mean_nll);
  EXPECT_EQ(a.kl_divergence.mean, b.kl_divergence.mean);
  EXPECT_EQ(a.probability_change.p99_9, b.probability_change.p99_9);
}

// A model whose weights give NaN says so in place of a figure.
TEST_F(PerplexityRules, NoNumberIsCounted) {
  test::TinyLlama spec;
  spec.d_model = 64;
  spec.d_ff = 96;
  spec.head_dim = 16;
  spec.without = {"output_norm.weight"};
  test::TinyLlamaWriter writer(spec);
  writer.file().tensor("output_norm.weight", {64}, std::vector<float>(64, std::nanf("")));
  writer.file().write(folder_ / "nan.gguf");
  Context context = make_context(Model::load((folder_ / "nan.gguf").string(), {.tokenizer = false})),
          base = make_context(model_);
  const auto r = perplexity(context, &base, text(32), {.n_chunk = 16});
  EXPECT_EQ(r.n_not_finite, r.n_scored);
  EXPECT_TRUE(std::isnan(r.perplexity));
  EXPECT_TRUE(std::isnan(r.kl_divergence.median));
  EXPECT_FALSE(std::isnan(r.base_perplexity));
}

}  // namespace
}  // namespace assay
