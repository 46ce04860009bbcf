// Whole models on the GPU: the digests of all logits and of the cache equal the golden ones, which the CPU's kernels
// and references give, in every weight format and numerics setting, whatever the chunks.
#include <gtest/gtest.h>

#include <numeric>

#include "assay/devices.h"
#include "support/engine/cuda_gpus.h"
#include "support/invariance.h"

namespace assay {
namespace {

#define ASSAY_REQUIRE_GPU()                          \
  do {                                               \
    const std::string none = list_devices().no_cuda; \
    if (!none.empty()) GTEST_SKIP() << none;         \
  } while (false)

std::vector<test::Way> gpu_ways(size_t n_tokens) {
  std::vector<test::Way> ways = {{1, 512, Kernels::best, {}},
                                 {1, 64, Kernels::best, {}},
                                 {1, 7, Kernels::best, {}},
                                 {1, 1, Kernels::best, {}},
                                 {1, 64, Kernels::best, test::random_pieces(n_tokens, 1)},
                                 {1, 64, Kernels::best, test::random_pieces(n_tokens, 2)}};
  for (test::Way& way : ways) way.backend = Backend::cuda;
  return ways;
}

// A way for each number of layers on the GPU, and all of them over two and three parts.
std::vector<test::Way> split_ways(const std::vector<int64_t>& n_gpu_layers) {
  const int second = std::min(1, test::n_cuda_gpus() - 1);  // the same GPU where there is one
  std::vector<test::Way> ways;
  for (const int64_t n : n_gpu_layers) ways.push_back({2, 64, Kernels::best, {}, Backend::cuda, n, {}});
  ways.push_back({2, 7, Kernels::best, {}, Backend::cuda, n_gpu_layers.back(), {second}});
  ways.push_back({2, 1, Kernels::best, {}, Backend::cuda, n_gpu_layers.back(), {0, second}});
  ways.push_back({2, 64, Kernels::best, {}, Backend::cuda, -1, {0, second}});
  ways.push_back({2, 1, Kernels::best, {}, Backend::cuda, -1, {second, 0}});
  ways.push_back({2, 512, Kernels::best, {}, Backend::cuda, -1, {0, second, 0}});
  return ways;
}

// Shards on GPUs of their own, of which there must be as many. Chunks of up to 8 tokens run kernels that wait for other
// GPUs, where these reach one another.
std::vector<test::Way> shard_ways(const std::vector<int>& numbers, size_t n_tokens) {
  const int n_devices = test::n_cuda_gpus();
  std::vector<test::Way> ways;
  for (const int n : numbers) {
    if (n > n_devices) continue;
    std::vector<int> devices(static_cast<size_t>(n));
    std::iota(devices.begin(), devices.end(), 0);
    for (const int64_t n_ubatch : {7, 1})
      ways.push_back({2, n_ubatch, Kernels::best, {}, Backend::cuda, -1, devices, SplitMode::tensor});
    ways.push_back(
        {2, 64, Kernels::best, test::random_pieces(n_tokens, 3), Backend::cuda, -1, devices, SplitMode::tensor});
  }
  return ways;
}

#define ASSAY_REQUIRE_GPUS(n)                                                     \
  do {                                                                            \
    ASSAY_REQUIRE_GPU();                                                          \
    const int found = test::n_cuda_gpus();                                        \
    if (found < (n)) GTEST_SKIP() << "needs " << (n) << " GPUs, found " << found; \
  } while (false)

class CudaFormat : public ::testing::TestWithParam<tensor::DType> {};

void check(const test::GoldenModel& golden, const std::vector<test::Way>& ways) {
  const test::DigestBook book;
  int64_t n_runs = 0;
  for (const test::Setting& setting : test::all_settings()) test::expect_invariant(golden, setting, ways, book, n_runs);
  std::printf("%s on the GPU: %lld runs, the golden digests in 9 settings\n", golden.name.c_str(),
              static_cast<long long>(n_runs));
}

TEST_P(CudaFormat, HasTheGoldenDigests) {
  ASSAY_REQUIRE_GPU();
  const test::GoldenModel golden = test::golden_tiny_model(GetParam());
  check(golden, gpu_ways(golden.ids.size()));
}

// The last layer on the GPU, and each layer on one: the same one twice, and two where there are.
TEST_P(CudaFormat, HasTheGoldenDigestsWhenSplit) {
  ASSAY_REQUIRE_GPU();
  check(test::golden_tiny_model(GetParam()), split_ways({1}));
}

TEST_P(CudaFormat, HasTheGoldenDigestsInShards) {
  ASSAY_REQUIRE_GPUS(2);
  const test::GoldenModel golden = test::golden_tiny_model(GetParam());
  check(golden, shard_ways({2, 4}, golden.ids.size()));
}

INSTANTIATE_TEST_SUITE_P(All, CudaFormat, ::testing::ValuesIn(test::all_dtypes()),
                         [](const auto& parameters) { return std::string(tensor::traits(parameters.param).name); });

TEST(CudaRealModel, SmolLm2) {
  ASSAY_REQUIRE_GPU();
  ASSAY_REQUIRE_FILE(test::smollm2());
  check(test::golden_real_model(test::smollm2()), gpu_ways(80));
}

TEST(CudaRealModel, Gemma3) {
  ASSAY_REQUIRE_GPU();
  ASSAY_REQUIRE_FILE(test::gemma3());
  check(test::golden_real_model(test::gemma3()), gpu_ways(80));
}

TEST(CudaRealModelSplit, SmolLm2) {
  ASSAY_REQUIRE_GPU();
  ASSAY_REQUIRE_FILE(test::smollm2());
  check(test::golden_real_model(test::smollm2()), split_ways({1, 17, 29}));
}

TEST(CudaRealModelSplit, Gemma3) {
  ASSAY_REQUIRE_GPU();
  ASSAY_REQUIRE_FILE(test::gemma3());
  check(test::golden_real_model(test::gemma3()), split_ways({1, 9}));
}

TEST(CudaRealModelShards, SmolLm2) {
  ASSAY_REQUIRE_GPUS(2);
  ASSAY_REQUIRE_FILE(test::smollm2());
  check(test::golden_real_model(test::smollm2()), shard_ways({2, 3, 4}, 80));
}

TEST(CudaRealModelShards, Gemma3) {
  ASSAY_REQUIRE_GPUS(2);
  ASSAY_REQUIRE_FILE(test::gemma3());
  check(test::golden_real_model(test::gemma3()), shard_ways({2, 4}, 80));
}

}  // namespace
}  // namespace assay
