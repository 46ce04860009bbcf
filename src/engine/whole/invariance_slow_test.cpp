// Small random models in every weight format and both real models; threads 1, 2, 3, 5; chunks 1, 7, 64, 512; random
// partitions, 20 of them and in a share of the tests 6, other ones in every format; every kernel set. One digest of the
// logits and one of the cache per numerics setting, equal to the golden ones.
#include <gtest/gtest.h>

#include "support/invariance.h"
#include "support/rounds.h"

namespace assay {
namespace {

std::vector<test::Way> main_ways() {
  return {{2, 512, Kernels::best, {}}, {1, 64, Kernels::best, {}}, {3, 7, Kernels::avx2, {}},
          {5, 1, Kernels::avx512, {}}, {2, 64, Kernels::avx2, {}}, {3, 512, Kernels::avx512, {}},
          {2, 64, Kernels::neon, {}},  {3, 7, Kernels::neon, {}},  {5, 1, Kernels::neon_i8mm, {}}};
}

void add_partitions(std::vector<test::Way>& ways, size_t n_tokens, uint64_t n_partitions, uint64_t first = 1) {
  constexpr int kThreads[] = {1, 2, 3, 5};
  for (uint64_t seed = first; seed < first + n_partitions; ++seed)
    ways.push_back({kThreads[seed % 4], 64, Kernels::best, test::random_pieces(n_tokens, seed)});
}

bool is_default(const test::Setting& setting) {
  return setting.numerics == Numerics::exact && setting.activation_bits == 15 && setting.cache == KvType::f16;
}

class EveryFormat : public ::testing::TestWithParam<tensor::DType> {};

TEST_P(EveryFormat, IsInvariant) {
  const test::DigestBook book;
  const test::GoldenModel golden = test::golden_tiny_model(GetParam());
  int64_t n_runs = 0;
  for (const test::Setting& setting : test::all_settings()) {
    std::vector<test::Way> ways = main_ways();
    if (setting.cache == KvType::f16) {
      ways.push_back({2, 64, Kernels::reference, {}});
      const uint64_t n_partitions = test::rounds<uint64_t>(20, is_default(setting) ? 6 : 2);
      add_partitions(ways, golden.ids.size(), n_partitions, 1 + n_partitions * static_cast<uint64_t>(GetParam()));
    } else {
      ways.resize(3);  // the kernels of the cache's type; the rest has been seen
    }
    test::expect_invariant(golden, setting, ways, book, n_runs);
  }
  std::printf("%s: %lld runs, one digest for each of 9 settings\n", golden.name.c_str(),
              static_cast<long long>(n_runs));
}

INSTANTIATE_TEST_SUITE_P(All, EveryFormat, ::testing::ValuesIn(test::all_dtypes()),
                         [](const auto& parameters) { return std::string(tensor::traits(parameters.param).name); });

// every: in every setting, not in the default alone.
void check_real_model(const std::filesystem::path& path, bool every) {
  const test::DigestBook book;
  const test::GoldenModel golden = test::golden_real_model(path);
  int64_t n_runs = 0, n_settings = 0;
  for (const test::Setting& setting : test::all_settings()) {
    if (!every && !is_default(setting)) continue;
    ++n_settings;
    std::vector<test::Way> ways = main_ways();
    if (is_default(setting) || (setting.cache == KvType::f16 && test::is_exhaustive())) {
      add_partitions(ways, golden.ids.size(),
                     is_default(setting) ? test::rounds(10, 4) : 2);  // the small models see more, in every setting
    } else {
      ways.resize(3);
    }
    if (is_default(setting) && every && test::is_exhaustive()) {
      ways.push_back({2, 64, Kernels::reference, {}});  // slow: the small models see it in every setting
    }
    test::expect_invariant(golden, setting, ways, book, n_runs);
  }
  std::printf("%s: %lld runs, one digest for each of %lld settings\n", golden.name.c_str(),
              static_cast<long long>(n_runs), static_cast<long long>(n_settings));
}

TEST(RealModelInvariance, SmolLm2) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  check_real_model(test::smollm2(), true);
}

TEST(RealModelInvariance, Gemma3) {
  ASSAY_REQUIRE_FILE(test::gemma3());
  check_real_model(test::gemma3(), test::is_exhaustive());
}

}  // namespace
}  // namespace assay
