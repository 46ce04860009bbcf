// The tiny random models against Hugging Face transformers' float64 logits (tests/data/goldens/tiny). Transformers
// makes its rotation tables and norms in float32, hence 2e-4.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "assay/context.h"
#include "support/goldens.h"
#include "support/logits.h"
#include "support/shared_data.h"

namespace assay {
namespace {

constexpr double kTolerance = 2e-4;
constexpr const char* kModels[] = {
    "llama",           "llama-tied", "llama-bias", "llama-headdim", "llama-rope-linear", "llama-rope-llama3",
    "llama-rope-yarn", "gemma3"};

class TinyGolden : public ::testing::TestWithParam<std::tuple<const char*, Numerics>> {};

TEST_P(TinyGolden, Follows) {
  const auto [name, numerics] = GetParam();
  const std::filesystem::path gguf = test::shared(std::string("goldens/tiny/") + name + ".gguf");
  ASSAY_REQUIRE_FILE(gguf);
  const test::TinyGolden golden = test::read_tiny_golden(test::shared(std::string("goldens/tiny/") + name + ".json"));
  ContextOptions options;
  options.numerics = numerics;
  options.cache_k = options.cache_v = KvType::f32;
  options.n_ubatch = 7;
  options.n_threads = 1;
  Context context(Model::load(gguf.string(), {.tokenizer = false}), options);
  double worst_logit = 0, worst_sum = 0, worst_nll = 0;
  const int64_t n = static_cast<int64_t>(golden.ids.size());
  context.decode_all(golden.ids, [&](int64_t position, std::span<const double> logits) {
    const size_t i = static_cast<size_t>(position);
    const double sum = test::log_sum_exp(logits);
    worst_sum = std::max(worst_sum, std::abs(sum - golden.logsumexp[i]));
    if (position + 1 < n) {
      worst_nll = std::max(worst_nll, std::abs(sum - logits[static_cast<size_t>(golden.ids[i + 1])] - golden.nll[i]));
    }
    if (position + 3 < n) return;
    const std::vector<double>& expected = golden.logits_last3[static_cast<size_t>(position + 3 - n)];
    ASSERT_EQ(logits.size(), expected.size());
    for (size_t j = 0; j < expected.size(); ++j) worst_logit = std::max(worst_logit, std::abs(logits[j] - expected[j]));
  });
  EXPECT_EQ(context.n_past(), n);
  EXPECT_LT(worst_logit, kTolerance);
  EXPECT_LT(worst_sum, kTolerance);
  EXPECT_LT(worst_nll, kTolerance);
  RecordProperty("worst_logit", std::to_string(worst_logit));
}

INSTANTIATE_TEST_SUITE_P(All, TinyGolden,
                         ::testing::Combine(::testing::ValuesIn(kModels),
                                            ::testing::Values(Numerics::f32, Numerics::oracle)),
                         [](const auto& parameters) {
                           std::string text = std::string(std::get<0>(parameters.param)) + "_" +
                                              std::string(name(std::get<1>(parameters.param)));
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

}  // namespace
}  // namespace assay
