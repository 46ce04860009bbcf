// Every family's tiny random models against Hugging Face transformers in float64: 2e-4 in mode f32 with an f32 cache,
// 1e-6 in mode oracle; and one digest in mode exact whatever the kernels, threads, chunks and parts.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "assay/context.h"
#include "assay/devices.h"
#include "support/golden_run.h"
#include "support/goldens.h"
#include "support/shared_data.h"

namespace assay {
namespace {

constexpr const char* kDecoders[] = {"qwen2",          "qwen3",
                                     "gemma",          "gemma2",
                                     "ministral3",     "smollm3",
                                     "phi3",           "glm4",
                                     "granite",        "cohere",
                                     "cohere2",        "olmo2",
                                     "olmo3",          "exaone4",
                                     "exaone4-32b",    "starcoder2",
                                     "stablelm",       "gpt2",
                                     "gptneox",        "olmo",
                                     "ernie45",        "seedoss",
                                     "hunyuan",        "apertus",
                                     "arcee",          "nemotron",
                                     "graniteswa",     "mixtral",
                                     "qwen2moe",       "qwen3moe",
                                     "olmoe",          "gptoss",
                                     "glm4moe",        "granitemoe-shared",
                                     "ernie45moe",     "minimaxm2",
                                     "llama4",         "hunyuanmoe",
                                     "exaonemoe",      "cohere2moe",
                                     "afmoe",          "laguna",
                                     "mimo2",          "gemma4",
                                     "gemma4-e",       "gemma4-moe",
                                     "deepseek2",      "deepseek2-lite",
                                     "deepseek3-yarn", "glm47flash",
                                     "mistral4",       "deepseek32",
                                     "glmdsa",         "qwen35",
                                     "qwen35moe",      "qwen3next",
                                     "lfm2",           "lfm2moe",
                                     "granitehybrid",  "granitehybrid-moe",
                                     "nemotronh",      "nemotronhmoe",
                                     "falconh1",       "mamba",
                                     "mamba2",         "kimilinear",
                                     "bailing3",       "qwen4exp",
                                     "minimaxm3",      "gemma3n",
                                     "bitnet",         "cohere2moe-rms",
                                     "llama4-full",    "bailing3-bounded",
                                     "phimoe",         "minimaxm3-blocks"};

std::string file(const std::string& name, const char* ending) {
  return test::shared("goldens/arch/" + name + ending).string();
}

class ArchGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(ArchGolden, FollowsTransformers) {
  ASSAY_REQUIRE_FILE(file(GetParam(), ".gguf"));
  const test::TinyGolden golden = test::read_tiny_golden(file(GetParam(), ".json"));
  const auto model = Model::load(file(GetParam(), ".gguf"), {.tokenizer = false});
  // Its A, up to 16 and in the exponent of every token, is float32 in the file: what that rounds is seen.
  const double oracle_tolerance = std::string(GetParam()) == "mamba" ? 4e-6 : 1e-6;
  for (const auto& [numerics, tolerance] :
       {std::pair(Numerics::f32, 2e-4), std::pair(Numerics::oracle, oracle_tolerance)}) {
    ContextOptions options;
    options.numerics = numerics;
    options.cache_k = options.cache_v = KvType::f32;
    options.n_ctx = 64;
    options.n_ubatch = 7;
    options.n_threads = 1;
    Context context(model, options);
    EXPECT_LT(test::worst_of(context, golden), tolerance) << name(numerics);
  }
}

// All logits and the cache's digest of one way to run the golden's tokens.
struct Found {
  std::vector<double> logits;
  std::string cache;
  friend bool operator==(const Found&, const Found&) = default;
};
Found run(const std::shared_ptr<const Model>& model, const std::vector<int32_t>& ids, Kernels kernels, int threads,
          int64_t ubatch) {
  ContextOptions options;
  options.kernels = kernels;
  options.n_threads = threads;
  options.n_ubatch = ubatch;
  options.n_ctx = 64;
  Context context(model, options);
  Found found;
  context.decode_all(ids, [&](int64_t, std::span<const double> logits) {
    found.logits.insert(found.logits.end(), logits.begin(), logits.end());
  });
  found.cache = context.kv_digest();
  return found;
}

TEST_P(ArchGolden, HasOneDigestWhateverTheSetting) {
  ASSAY_REQUIRE_FILE(file(GetParam(), ".gguf"));
  const std::vector<int32_t> ids = test::read_tiny_golden(file(GetParam(), ".json")).ids;
  const auto model = Model::load(file(GetParam(), ".gguf"), {.tokenizer = false});
  const Found plain = run(model, ids, Kernels::reference, 1, 64);
  ASSERT_FALSE(plain.logits.empty());
  for (const auto& [threads, ubatch] : {std::pair(1, 64), std::pair(2, 7), std::pair(3, 1), std::pair(5, 13)}) {
    EXPECT_TRUE(plain == run(model, ids, Kernels::best, threads, ubatch))
        << threads << " threads, chunks of " << ubatch;
  }
  EXPECT_TRUE(plain == run(model, ids, Kernels::reference, 2, 5)) << "reference in chunks";
}

INSTANTIATE_TEST_SUITE_P(Decoders, ArchGolden, ::testing::ValuesIn(kDecoders), [](const auto& parameters) {
  std::string text = parameters.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
});

}  // namespace
}  // namespace assay
