// Embeddings of tiny random models against Hugging Face transformers in float64, and their bits: alone, beside others,
// in chunks, with other threads and kernels.
#include "assay/embed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "assay/error.h"
#include "support/goldens.h"
#include "support/shared_data.h"

namespace assay::embed_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kEmbedders[] = {"qwen3-embed",   "bert",       "xlm-roberta", "nomicbert",
                                      "nomicbert-moe", "modernbert", "eurobert",    "gemma-embed"};

std::string file(const std::string& name, const char* ending) {
  return test::shared("goldens/arch/" + name + ending).string();
}

struct Golden {
  std::vector<TokenId> ids;
  std::vector<double> embedding;
  std::string pooling;
};
Golden read_golden(const std::string& name) {
  const boost::json::object golden = test::read_json(file(name, ".json"));
  return {test::to_ids(golden.at("ids")), test::to_doubles(golden.at("embedding")),
          golden.at("pooling").as_string().c_str()};
}

std::shared_ptr<const Model> load(const std::string& name) {
  return Model::load(file(name, ".gguf"), {.tokenizer = false});
}

EmbedOptions with(Numerics numerics, int threads = 1, int64_t ubatch = 64, Kernels kernels = Kernels::best) {
  EmbedOptions options;
  options.normalize = false;
  options.context.numerics = numerics;
  options.context.n_ctx = 64;
  options.context.n_ubatch = ubatch;
  options.context.n_threads = threads;
  options.context.kernels = kernels;
  return options;
}

std::vector<double> one(Embedder& embedder, const std::vector<TokenId>& ids) { return embedder.embed({&ids, 1}).at(0); }

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class EmbedGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(EmbedGolden, FollowsTransformers) {
  ASSAY_REQUIRE_FILE(file(GetParam(), ".gguf"));
  const Golden golden = read_golden(GetParam());
  const auto model = load(GetParam());
  for (const auto& [numerics, tolerance] : {std::pair(Numerics::f32, 2e-4), std::pair(Numerics::oracle, 1e-6)}) {
    Embedder embedder(model, with(numerics));
    EXPECT_EQ(name(embedder.pooling()), golden.pooling);
    const std::vector<double> found = one(embedder, golden.ids);
    ASSERT_EQ(found.size(), golden.embedding.size());
    EXPECT_EQ(static_cast<int64_t>(found.size()), embedder.width());
    double worst = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const double off = std::abs(found[i] - golden.embedding[i]);
      worst = off <= worst ? worst : off;  // a NaN is taken
    }
    EXPECT_LT(worst, tolerance) << name(numerics);
  }
}

TEST_P(EmbedGolden, HasOneVectorWhateverTheSetting) {
  ASSAY_REQUIRE_FILE(file(GetParam(), ".gguf"));
  const std::vector<TokenId> ids = read_golden(GetParam()).ids;
  const auto model = load(GetParam());
  for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
    EmbedOptions plain_options = with(Numerics::exact, 1, 64, Kernels::reference);
    plain_options.pooling = pooling;
    Embedder reference(model, plain_options);
    // Texts of several lengths, alone.
    std::vector<std::vector<TokenId>> texts;
    std::vector<std::vector<double>> alone;
    for (const size_t n : {ids.size(), size_t{1}, size_t{17}, size_t{3}, ids.size() - 1}) {
      texts.emplace_back(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
      alone.push_back(one(reference, texts.back()));
    }
    EXPECT_EQ(reference.embed(texts), alone) << "beside one another";
    for (const auto& [threads, ubatch] : {std::pair(1, 64), std::pair(2, 7), std::pair(3, 1), std::pair(5, 100)}) {
      EmbedOptions options = with(Numerics::exact, threads, ubatch);
      options.pooling = pooling;
      Embedder embedder(model, options);
      EXPECT_EQ(embedder.embed(texts), alone) << name(pooling) << ", " << threads << " threads, chunks of " << ubatch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmbedGolden, ::testing::ValuesIn(kEmbedders), [](const auto& parameters) {
  std::string text = parameters.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
});

TEST(Embed, BringsVectorsToLengthOne) {
  ASSAY_REQUIRE_FILE(file("qwen3-embed", ".gguf"));
  const std::vector<TokenId> ids = read_golden("qwen3-embed").ids;
  EmbedOptions options = with(Numerics::f32);
  Embedder as_it_is(load("qwen3-embed"), options);
  options.normalize = true;
  Embedder normalised(load("qwen3-embed"), options);
  const std::vector<double> x = one(as_it_is, ids), y = one(normalised, ids);
  double squares = 0, length = 0;
  for (const double v : x) squares += v * v;
  for (const double v : y) length += v * v;
  EXPECT_NEAR(length, 1, 1e-6);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i] / std::sqrt(squares), 1e-7);
}

TEST(Embed, RefusesByName) {
  ASSAY_REQUIRE_FILE(file("qwen3", ".gguf"));
  const auto model = load("qwen3");
  EXPECT_EQ(pooling_of(*model), std::nullopt);
  EXPECT_THAT(refusal([&] { Embedder embedder(model); }), HasSubstr("--pooling"));
  EmbedOptions options = with(Numerics::exact);
  options.pooling = Pooling::mean;
  Embedder embedder(model, options);
  EXPECT_THAT(refusal([&] { one(embedder, {}); }), HasSubstr("at least one token"));
  EXPECT_THAT(refusal([&] { one(embedder, {1, 320}); }), HasSubstr("found 320"));
  EXPECT_THAT(refusal([&] { one(embedder, std::vector<TokenId>(65, 1)); }), HasSubstr("65 tokens"));
  EXPECT_EQ(one(embedder, {1, 2}).size(), 64u);  // and goes on after them
  EXPECT_THAT(refusal([] { parse_pooling("max"); }), HasSubstr("mean, cls, last"));
}

TEST(Embed, AnEncoderHasNothingElse) {
  ASSAY_REQUIRE_FILE(file("bert", ".gguf"));
  const auto model = load("bert");
  EXPECT_FALSE(model->has_logits());
  EXPECT_TRUE(load("qwen3-embed")->has_logits());
  EXPECT_THAT(refusal([&] { Context context(model); }), AllOf(HasSubstr("bert"), HasSubstr("assay embed")));
  ContextOptions options;
  options.embeddings = true;
  options.n_ctx = 16;
  options.n_threads = 1;
  options.n_sequences = 2;
  Context context(model, options);
  context.decode(std::vector<TokenId>{1, 2, 3});
  EXPECT_EQ(context.logits().size(), 64u);
  EXPECT_THAT(refusal([&] { context.decode(std::vector<TokenId>{4}); }),
              HasSubstr("run whole"));  // it would see what saw nothing of it
  const std::vector<BatchToken> by_turns = {{1, 1, true}, {1, 0, true}, {2, 1, true}};
  context.clear();
  EXPECT_THAT(refusal([&] { context.decode_batch(by_turns); }), HasSubstr("run whole"));
}

TEST(Embed, StopsWhereItIsCancelled) {
  ASSAY_REQUIRE_FILE(file("qwen3-embed", ".gguf"));
  const std::vector<TokenId> ids = read_golden("qwen3-embed").ids;
  Embedder embedder(load("qwen3-embed"), with(Numerics::exact, 1, 8));
  const std::vector<double> whole = one(embedder, ids);
  int n_asked = 0;
  embedder.set_cancel([&] { return ++n_asked == 3; });
  EXPECT_TRUE(embedder.embed({&ids, 1}).empty());
  embedder.set_cancel({});
  EXPECT_EQ(one(embedder, ids), whole);  // nothing of the ended call is left
}

}  // namespace
}  // namespace assay::embed_test
