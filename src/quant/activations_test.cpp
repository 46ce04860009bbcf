// Quantised activations against their definition, evaluated in double, and at their edges.
#include "quant/activations.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "quant/steps.h"
#include "support/random_weights.h"

namespace assay::quant {
namespace {

struct Quantised {
  std::vector<std::byte> memory;
  Activations a;
};

Quantised quantise(const std::vector<float>& x, Activation kind, int planes) {
  const auto k = static_cast<int64_t>(x.size());
  Quantised result;
  result.memory.assign(activations_bytes(kind, planes, 1, k), std::byte{0xAA});
  result.a = carve(kind, planes, 1, k, result.memory.data());
  quantise_row_ref(x.data(), result.a, 0);
  return result;
}

TEST(Activations, FollowTheDefinition) {
  for (const Activation kind : {Activation::a32, Activation::a256}) {
    const std::vector<float> x = test::random_activations(2048, 3);
    const Quantised two = quantise(x, kind, 2), one = quantise(x, kind, 1);
    const int64_t block = two.a.block();
    EXPECT_EQ(block, kind == Activation::a32 ? 32 : 256);
    for (int64_t b = 0; b < 2048 / block; ++b) {
      float amax = 0;
      for (int64_t j = b * block; j < (b + 1) * block; ++j) amax = std::max(amax, std::abs(x[static_cast<size_t>(j)]));
      EXPECT_EQ(two.a.d[b], amax / 127.0f);
      EXPECT_EQ(one.a.d[b], amax / 127.0f);
      const float r = 127.0f / amax;
      for (int64_t j = b * block; j < (b + 1) * block; ++j) {
        const float value = x[static_cast<size_t>(j)];
        EXPECT_EQ(two.a.q[j], one.a.q[j]);
        EXPECT_EQ(two.a.q[j], std::nearbyint(value * r));
        EXPECT_EQ(two.a.l[j], std::nearbyint(128.0 * (static_cast<double>(value) * r - two.a.q[j])));
        // 15 bits: within half a step of d / 128, and the roundings of r and d.
        EXPECT_NEAR(two.a.d[b] * (two.a.q[j] + two.a.l[j] / 128.0), value, two.a.d[b] * (0.501 / 128 + 127 * 0x1p-22));
      }
    }
  }
}

TEST(Activations, SumsAreExact) {
  for (const Activation kind : {Activation::a32, Activation::a256}) {
    const Quantised x = quantise(test::random_activations(1024, 9), kind, 2);
    for (int64_t g = 0; g < 1024 / x.a.group(); ++g) {
      int q = 0, l = 0;
      for (int64_t j = g * x.a.group(); j < (g + 1) * x.a.group(); ++j) {
        q += x.a.q[j];
        l += x.a.l[j];
      }
      EXPECT_EQ(x.a.q_sums[g], q);
      EXPECT_EQ(x.a.l_sums[g], l);
    }
  }
}

TEST(Activations, Edges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Activation kind : {Activation::a32, Activation::a256}) {
    const auto block = static_cast<size_t>(kind == Activation::a32 ? 32 : 256);
    std::vector<float> x(6 * block, 1.0f);
    for (size_t j = 0; j < block; ++j) {
      x[j] = -0.0f;                                          // all zero
      x[block + j] = j == 3 ? 0x1.fffffep-101f : 0x1p-140f;  // below the threshold
      x[2 * block + j] = j == 3 ? 0x1p-100f : 0x1p-149f;     // at it, beside subnormals
    }
    x[3 * block + 7] = std::numeric_limits<float>::quiet_NaN();
    x[4 * block + block - 1] = -kInfinity;
    x[5 * block] = -std::numeric_limits<float>::max();
    const Quantised q = quantise(x, kind, 2);
    const auto all_zero = [&](size_t b) {
      for (size_t j = b * block; j < (b + 1) * block; ++j) {
        if (q.a.q[j] != 0 || q.a.l[j] != 0) return false;
      }
      return true;
    };
    for (const size_t b : {0, 1, 3, 4}) EXPECT_TRUE(all_zero(b)) << b;
    EXPECT_EQ(q.a.d[0], 0.0f);
    EXPECT_FALSE(std::signbit(q.a.d[0]));
    EXPECT_EQ(q.a.d[1], 0.0f);
    EXPECT_EQ(q.a.d[2], 0x1p-100f / 127.0f);
    EXPECT_EQ(q.a.q[2 * block + 3], 127);
    EXPECT_TRUE(std::isnan(q.a.d[3]));
    EXPECT_TRUE(std::isnan(q.a.d[4]));
    EXPECT_EQ(q.a.q[5 * block], -127);
    EXPECT_EQ(q.a.q[5 * block + 1], 0);
    EXPECT_TRUE(std::isfinite(q.a.d[5]));
  }
}

TEST(Activations, RefinementStaysWithinSixBitsAndSign) {
  // Values halfway between two first-plane integers, where the rest is largest.
  std::vector<float> x(256);
  for (int j = 0; j < 256; ++j)
    x[static_cast<size_t>(j)] = (static_cast<float>(j % 127) + 0.5f) * (j % 2 == 0 ? 1.0f : -1.0f);
  x[0] = 127.0f;
  const Quantised q = quantise(x, Activation::a256, 2);
  int largest = 0;
  for (int j = 0; j < 256; ++j) largest = std::max(largest, std::abs(static_cast<int>(q.a.l[j])));
  EXPECT_EQ(largest, 64);
}

TEST(Activations, PartsDoNotOverlapAndAreAligned) {
  for (const Activation kind : {Activation::a32, Activation::a256}) {
    for (const int planes : {1, 2}) {
      std::vector<std::byte> memory(activations_bytes(kind, planes, 3, 768) + 64);
      auto* begin = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
      const Activations a = carve(kind, planes, 3, 768, begin);
      std::vector<std::pair<const void*, size_t>> parts = {{a.q, 3 * 768}};
      if (planes == 2) parts.push_back({a.l, 3 * 768});
      parts.push_back({a.d, static_cast<size_t>(3 * 768 / a.block()) * 4});
      parts.push_back({a.q_sums, static_cast<size_t>(3 * 768 / a.group()) * 2});
      if (planes == 2) parts.push_back({a.l_sums, static_cast<size_t>(3 * 768 / a.group()) * 2});
      const std::byte* end = begin;
      for (const auto& [part, bytes] : parts) {
        EXPECT_GE(static_cast<const std::byte*>(part), end);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(part) % 64, 0u);
        end = static_cast<const std::byte*>(part) + bytes;
      }
      EXPECT_LE(end, begin + activations_bytes(kind, planes, 3, 768));
      if (planes == 1) {
        EXPECT_EQ(a.l, nullptr);
        EXPECT_EQ(a.l_sums, nullptr);
      }
    }
  }
}

// Every fraction at one exponent, some at the smallest and at the largest: nothing is rounded differently from exponent
// to exponent.
TEST(Activations, ScalesAreQuotients) {
  for (const uint32_t exponent : {127u - 100, 127u, 254u}) {
    int64_t n_wrong = 0;
    for (uint32_t fraction = 0; fraction < 1u << 23; fraction += exponent == 127 ? 1 : 61) {
      const float amax = std::bit_cast<float>(exponent << 23 | fraction);
      const BlockScale scale = block_scale(std::bit_cast<uint32_t>(amax));
      n_wrong += scale.d != amax / 127.0f || scale.r != 127.0f / amax;
    }
    EXPECT_EQ(n_wrong, 0) << "exponent " << exponent;
  }
}

TEST(Activations, ChunkOfABlockByAProduct) {
  for (int n = 1; n <= 4096; ++n) {
    int64_t n_wrong = 0;
    for (int i = 0, chunk = 0; i < n; ++i) {
      while (chunk_begin(chunk + 1, n) <= i) ++chunk;
      n_wrong += chunk_of(i, 1.0f / static_cast<float>(n)) != chunk;
    }
    ASSERT_EQ(n_wrong, 0) << n << " blocks";
  }
}

TEST(Activations, ChunksCoverTheBlocks) {
  for (int64_t n = 0; n < 40; ++n) {
    EXPECT_EQ(chunk_begin(0, n), 0);
    EXPECT_EQ(chunk_begin(8, n), n);
    for (int64_t i = 0; i < 8; ++i) EXPECT_LE(chunk_begin(i, n), chunk_begin(i + 1, n));
  }
}

}  // namespace
}  // namespace assay::quant
