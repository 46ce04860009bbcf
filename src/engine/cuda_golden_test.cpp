// Whole models on the GPU: the digests of all logits and of the cache equal the golden ones, which the CPU's kernels and references give, in
// every weight format and numerics setting, whatever the chunks.
#include <gtest/gtest.h>

#include "assay/devices.h"
#include "quant/format.h"
#include "support/invariance.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

#define ASSAY_REQUIRE_GPU()                                       \
  do {                                                            \
    const std::string none = list_devices().no_cuda;              \
    if (!none.empty()) GTEST_SKIP() << none;                      \
  } while (false)

std::vector<test::Way> gpu_ways(size_t n_tokens) {
  std::vector<test::Way> ways = {{1, 512, Kernels::best, {}}, {1, 64, Kernels::best, {}}, {1, 7, Kernels::best, {}}, {1, 1, Kernels::best, {}},
                                 {1, 64, Kernels::best, test::random_pieces(n_tokens, 1)}, {1, 64, Kernels::best, test::random_pieces(n_tokens, 2)}};
  for (test::Way& way : ways) way.backend = Backend::cuda;
  return ways;
}

class CudaFormat : public ::testing::TestWithParam<tensor::DType> {};

TEST_P(CudaFormat, HasTheGoldenDigests) {
  ASSAY_REQUIRE_GPU();
  const test::DigestBook book;
  const std::vector<TokenId> ids = test::random_tokens(100, 96);
  test::TinyLlama spec;
  spec.dtype = GetParam();
  test::TempFolder folder;
  test::TinyLlamaWriter(spec).file().write(folder / "tiny.gguf");
  const auto model = Model::load((folder / "tiny.gguf").string(), {.tokenizer = false});
  const std::string name = std::string("random ") + std::string(tensor::traits(GetParam()).name);
  int64_t n_runs = 0;
  for (const test::Setting& setting : test::all_settings()) test::expect_invariant(name, model, ids, setting, gpu_ways(ids.size()), book, n_runs);
  RecordProperty("runs", std::to_string(n_runs));
}

std::vector<tensor::DType> all_dtypes() {
  std::vector<tensor::DType> dtypes;
  for (const quant::Format& format : quant::all_formats()) dtypes.push_back(format.dtype);
  return dtypes;
}
INSTANTIATE_TEST_SUITE_P(All, CudaFormat, ::testing::ValuesIn(all_dtypes()),
                         [](const auto& parameters) { return std::string(tensor::traits(parameters.param).name); });

void check_real_model(const std::string& name, const std::filesystem::path& path) {
  const test::DigestBook book;
  const std::vector<test::GoldenPrompt> prompts = test::read_goldens(test::data("goldens/" + path.stem().string() + ".json"));
  const auto longest = std::max_element(prompts.begin(), prompts.end(), [](const auto& a, const auto& b) { return a.ids.size() < b.ids.size(); });
  const std::span<const TokenId> ids = std::span(longest->ids).first(80);
  const auto model = Model::load(path.string());
  int64_t n_runs = 0;
  for (const test::Setting& setting : test::all_settings()) test::expect_invariant(name, model, ids, setting, gpu_ways(ids.size()), book, n_runs);
  std::printf("%s on the GPU: %lld runs, the golden digests in 9 settings\n", name.c_str(), static_cast<long long>(n_runs));
}

TEST(CudaRealModel, SmolLm2) {
  ASSAY_REQUIRE_GPU();
  ASSAY_REQUIRE_FILE(test::smollm2());
  check_real_model("smollm2-135m-instruct-Q4_1", test::smollm2());
}

TEST(CudaRealModel, Gemma3) {
  ASSAY_REQUIRE_GPU();
  ASSAY_REQUIRE_FILE(test::gemma3());
  check_real_model("gemma3-270m-Q4_K_M", test::gemma3());
}

}  // namespace
}  // namespace assay
