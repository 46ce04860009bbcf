// Scores of index keys by every set against the reference, by bits; and positions that are copied from head to head.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/sets/kernel_sets.h"
#include "backend/cpu/sets/kernels.h"
#include "support/random_weights.h"

namespace assay::backend::cpu {
namespace {

using ops::CacheType;

std::vector<float> random_row(int64_t n, uint64_t seed, bool extremes = false) {
  test::Random random(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) {
    value = random.normal();
    if (extremes && random.below(300) == 0)
      value = random.below(2) != 0 ? INFINITY : std::numeric_limits<float>::quiet_NaN();
    if (extremes && random.below(50) == 0) value = -0.0f;
  }
  return x;
}

std::vector<uint32_t> classes_of(const std::vector<float>& x) {
  std::vector<uint32_t> bits;
  for (const float value : x) bits.push_back(std::isnan(value) ? 0x7FC00000u : std::bit_cast<uint32_t>(value));
  return bits;
}

// A sequence of one layer, its pages in falling order.
struct Stored {
  KvCache cache;
  Stored(const ops::CacheLayer& layer, CacheType k, CacheType v, int64_t n)
      : cache(std::span(&layer, 1), options(k, v, n)) {
    const int64_t n_pages = pages::pages_of(n);
    cache.extend(1, n_pages * kCachePage);
    for (int64_t i = n_pages; i-- > 0;) {
      cache.truncate(1, i * kCachePage);
      cache.extend(0, std::min(kCachePage, n - cache.tables().n_positions(0)));
    }
  }
  static ops::ExecutorOptions options(CacheType k, CacheType v, int64_t n) {
    ops::ExecutorOptions o;
    o.n_ctx = n, o.n_sequences = 2, o.cache_k = k, o.cache_v = v;
    return o;
  }
  CacheHead head() const { return cache.head(0, 0, 0); }
};

class CachedKernels : public testing::TestWithParam<Kernels> {
 protected:
  const KernelFunctions reference = make_kernels(Kernels::reference);
  const KernelFunctions fast = make_kernels(GetParam());
};

TEST_P(CachedKernels, IndexScores) {
  for (const CacheType type : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
    for (const int64_t head_dim : {32, 96, 128}) {
      for (const int64_t n_heads : {1, 5, 8, 12, 13, 24}) {
        for (const int64_t n : {1, 31, 33, 290}) {
          for (const bool extremes : {false, true}) {
            const Stored stored({1, head_dim, 0, 0, true}, type, type, n);
            std::vector<std::byte> scratch(index_scratch_bytes(head_dim));
            for (int64_t p = 0; p < n; ++p)
              reference.store_key(stored.head(), p, random_row(head_dim, static_cast<uint64_t>(p), extremes).data(),
                                  scratch.data());
            const auto q = random_row(n_heads * head_dim, 5), w = random_row(n_heads, 6, extremes);
            const auto scored = [&](const KernelFunctions& kernels, int64_t step) {
              std::vector<float> scores(static_cast<size_t>((n + 31) / 32 * 32), -1.0f);
              for (int64_t begin = 0; begin < n; begin += step)
                kernels.index_scores({stored.head(), q.data(), w.data(), n_heads, scores.data()}, begin,
                                     std::min(n, begin + step), scratch.data());
              scores.resize(static_cast<size_t>(n));
              return classes_of(scores);
            };
            const auto expected = scored(reference, n);
            EXPECT_EQ(expected, scored(fast, n))
                << head_dim << " x " << n_heads << ", " << n << " keys, type " << static_cast<int>(type);
            EXPECT_EQ(expected, scored(fast, 64))
                << head_dim << " x " << n_heads << ", " << n << " keys in parts, type " << static_cast<int>(type);
          }
        }
      }
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CachedKernels);
INSTANTIATE_TEST_SUITE_P(Sets, CachedKernels, testing::ValuesIn(fast_kernel_sets()),
                         [](const auto& set) { return test_name(set.param); });

TEST(CopyPosition, KeepsEveryByteOfAKeyAndItsValue) {
  constexpr int64_t kPositions = 130;
  const KernelFunctions kernels = make_kernels(Kernels::reference);
  for (const CacheType k : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
    for (const CacheType v : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
      for (const bool in_keys : {false, true}) {
        const ops::CacheLayer layer{1, 96, 0, 64, in_keys};
        const Stored from(layer, k, v, kPositions), to(layer, k, v, kPositions);
        std::vector<std::byte> scratch(1024);
        for (int64_t p = 0; p < kPositions; ++p) {
          kernels.store_key(from.head(), p, random_row(96, static_cast<uint64_t>(p)).data(), scratch.data());
          if (!in_keys)
            kernels.store_value(from.head(), p, random_row(64, static_cast<uint64_t>(p) + 500).data(), scratch.data());
        }
        for (int64_t p = 0; p < kPositions; ++p) copy_position(from.head(), p, to.head(), kPositions - 1 - p);
        std::vector<std::byte> a(1024), b(1024);
        for (int64_t p = 0; p < kPositions; ++p) {
          get_key(from.head(), p, a.data()), get_key(to.head(), kPositions - 1 - p, b.data());
          ASSERT_TRUE(a == b) << p;
          if (in_keys) continue;
          get_value(from.head(), p, a.data()), get_value(to.head(), kPositions - 1 - p, b.data());
          ASSERT_TRUE(a == b) << p;
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay::backend::cpu
