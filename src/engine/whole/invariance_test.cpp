// The quick part of the invariance tests: three formats and the beginnings of two texts on the real models, in the
// default setting. invariance_slow_test.cpp has every format, and the real models at length. Also run on emulated ARM
// (scripts/test-aarch64), hence so short.
#include "support/invariance.h"

#include <gtest/gtest.h>

namespace assay {
namespace {

TEST(Invariance, ThreadsChunksAndKernelsDoNotMatter) {
  const test::DigestBook book;
  const std::vector<test::Way> ways = {{2, 512, Kernels::best, {}},
                                       {1, 7, Kernels::best, {}},
                                       {3, 64, Kernels::avx2, {}},
                                       {3, 64, Kernels::neon, {}},
                                       {5, 512, Kernels::reference, test::random_pieces(100, 1)}};
  int64_t n_runs = 0;
  for (const tensor::DType dtype : {tensor::DType::F16, tensor::DType::Q8_0, tensor::DType::Q4_K}) {
    test::expect_invariant(test::golden_tiny_model(dtype), {}, ways, book, n_runs);
  }
  RecordProperty("runs", std::to_string(n_runs));
}

TEST(Invariance, RealModelsBeginAlikeEverywhere) {
  const test::DigestBook book;
  const std::vector<test::Way> ways = {
      {2, 512, Kernels::best, {}}, {1, 1, Kernels::avx2, {}}, {1, 1, Kernels::neon, {}}};
  int64_t n_runs = 0;
  for (const auto& path : {test::smollm2(), test::gemma3()}) {
    ASSAY_REQUIRE_FILE(path);
    const std::string name = path.stem().string();
    const std::vector<TokenId> ids = test::read_goldens(test::data("goldens/" + name + ".json")).front().ids;
    const test::GoldenModel golden{
        name + ", first text", Model::load(path.string(), {.tokenizer = false}), {ids.begin(), ids.end()}};
    test::expect_invariant(golden, {}, ways, book, n_runs);
  }
}

}  // namespace
}  // namespace assay
