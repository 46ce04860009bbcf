// Perplexity of the real models on the first three chunks of 64 tokens of the GPL, against an independent float64
// engine in numpy (which took its token ids from llama.cpp's tokenizer, and put BOS first where the file adds it).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "assay/perplexity.h"
#include "support/shared_data.h"

namespace assay {
namespace {

struct Known {
  const char* name;
  std::filesystem::path path;
  int64_t n_tokens;
  double mean_nll, error;  // of the 93 scored tokens
  double first_nll, last_nll;
};

class RealPerplexity : public ::testing::TestWithParam<Known> {};

TEST_P(RealPerplexity, FollowsFloat64) {
  const Known& expected = GetParam();
  ASSAY_REQUIRE_FILE(expected.path);
  ASSAY_REQUIRE_FILE("/usr/share/common-licenses/GPL-3");
  std::ifstream file("/usr/share/common-licenses/GPL-3");
  std::stringstream text;
  text << file.rdbuf();
  std::string content = text.str();
  if (content.ends_with('\n')) content.pop_back();
  const auto model = Model::load(expected.path.string());
  const std::vector<TokenId> ids =
      model->tokenizer()->encode(content, {.parse_special = false, .add_bos = {}, .add_eos = false});
  EXPECT_EQ(static_cast<int64_t>(ids.size()), expected.n_tokens);
  ContextOptions options;
  options.n_ctx = 64;
  Context exact(model, options);
  options.numerics = Numerics::f32;
  options.cache_k = options.cache_v = KvType::f32;
  Context f32(model, options);
  const auto r = perplexity(f32, &exact, ids, {.n_chunk = 64, .n_chunks_max = 3, .keep_tokens = true});
  ASSERT_EQ(r.n_scored, 93);
  EXPECT_NEAR(r.mean_nll, expected.mean_nll, 1e-5);
  EXPECT_NEAR(r.mean_nll_error, expected.error, 1e-5);
  EXPECT_NEAR(r.tokens.front().nll, expected.first_nll, 1e-4);
  EXPECT_NEAR(r.tokens.back().nll, expected.last_nll, 1e-4);
  EXPECT_NEAR(r.base_mean_nll, expected.mean_nll, 2e-3);  // activations of 15 bits, a cache of half precision
  EXPECT_LT(r.kl_divergence.mean, 1e-5);
  EXPECT_GT(r.kl_divergence.mean, 0);
  std::printf("%s: mean nll %.9f (float64 %.9f), exact %.9f; divergence %.2g\n", expected.name, r.mean_nll,
              expected.mean_nll, r.base_mean_nll, r.kl_divergence.mean);
}

INSTANTIATE_TEST_SUITE_P(All, RealPerplexity,
                         ::testing::Values(Known{"smollm2", test::smollm2(), 7638, 3.646168924800796,
                                                 0.38864268412064457, 0.1475944742783959, 9.126508875561004},
                                           Known{"gemma3", test::gemma3(), 7562, 2.886557254390654, 0.2991336055347283,
                                                 1.0372978181548547, 5.91368704109375}),
                         [](const auto& parameters) { return std::string(parameters.param.name); });

}  // namespace
}  // namespace assay
