// Every small kernel against its reference, by bits: lane widths +-1, ragged tails, misaligned views, zeros,
// subnormals, infinities.
#include "backend/cpu/sets/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/cpu/sets/kernel_sets.h"
#include "support/random_weights.h"
#include "support/rounds.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kLengths[] = {1,  2,  7,  8,  9,  15,  16,  17,  31,  32,  33,   47,  48,
                                49, 63, 64, 65, 80, 255, 256, 257, 576, 640, 1536, 2049};

// NaNs are alike whatever their payload: the contract asks only that one stays one.
uint32_t bits_of(float x) { return std::isnan(x) ? 0x7FC00000u : std::bit_cast<uint32_t>(x); }

std::vector<uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<uint32_t> bits;
  for (const float value : x) bits.push_back(bits_of(value));
  return bits;
}

// n values of every kind, from the smallest subnormal to infinity where `extremes` asks for them.
std::vector<float> values(int64_t n, uint64_t seed, bool extremes) {
  const float special[] = {0.0f,    -0.0f, 1e-45f, -1e-40f, 1e-30f, 100.0f,
                           -100.0f, 1e30f, -3e38f, 88.72f,  -87.4f, -103.9f};
  test::Random random(seed);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) {
    value = random.normal();
    if (extremes && random.below(4) == 0) value = special[random.below(12)];
    if (extremes && random.below(200) == 0)
      value = random.below(2) != 0 ? INFINITY : std::numeric_limits<float>::quiet_NaN();
  }
  return x;
}

class SmallKernels : public testing::TestWithParam<Kernels> {
 protected:
  const KernelFunctions reference = make_kernels(Kernels::reference);
  const KernelFunctions fast = make_kernels(GetParam());
};

TEST_P(SmallKernels, RmsNorm) {
  for (const int64_t n : kLengths) {
    for (const int offset : {0, 1, 3}) {
      const auto x = values(n + offset, static_cast<uint64_t>(n), false), w = values(n + offset, 7, false);
      std::vector<float> a(static_cast<size_t>(n + offset)), b = a;
      reference.rms_norm(x.data() + offset, w.data() + offset, 1e-5f, n, a.data() + offset);
      fast.rms_norm(x.data() + offset, w.data() + offset, 1e-5f, n, b.data() + offset);
      EXPECT_EQ(bits_of(a), bits_of(b)) << n << " + " << offset;
      b = x;
      fast.rms_norm(b.data() + offset, w.data() + offset, 1e-5f, n, b.data() + offset);
      for (int i = 0; i < offset; ++i) b[static_cast<size_t>(i)] = 0;
      EXPECT_EQ(bits_of(a), bits_of(b)) << "in place, " << n;
    }
  }
}

// Squares that are subnormal, and squares that overflow: nothing is flushed to zero, nothing saturates.
TEST_P(SmallKernels, RmsNormOfTinyAndHugeRows) {
  for (const float scale : {1e-20f, 3e-23f, 1e-40f, 3e18f, 1e19f, 1e38f}) {
    for (const int64_t n : {1, 31, 64, 257}) {
      auto x = values(n, 3, false);
      for (float& value : x) value *= scale;
      const auto w = values(n, 7, false);
      std::vector<float> a(x.size()), b(x.size());
      reference.rms_norm(x.data(), w.data(), 0.0f, n, a.data());
      fast.rms_norm(x.data(), w.data(), 0.0f, n, b.data());
      EXPECT_EQ(bits_of(a), bits_of(b)) << scale << ", " << n;
    }
  }
}

TEST_P(SmallKernels, AddAndGates) {
  for (const bool extremes : {false, true}) {
    for (const int64_t n : kLengths) {
      for (const size_t offset : {0, 1, 3}) {
        const auto x = values(n + 3, static_cast<uint64_t>(n), extremes), y = values(n + 3, 99, extremes);
        for (size_t i_kernel = 0; i_kernel <= ops::kNActivationFunctions; ++i_kernel) {  // the last one is add
          const auto of = [&](const KernelFunctions& kernels) {
            return i_kernel < ops::kNActivationFunctions ? kernels.gate[i_kernel] : kernels.add;
          };
          std::vector<float> a(x.size()), b = a;
          of(reference)(x.data() + offset, y.data() + offset, n, a.data() + offset);
          of(fast)(x.data() + offset, y.data() + offset, n, b.data() + offset);
          EXPECT_EQ(bits_of(a), bits_of(b)) << n << " + " << offset;
        }
      }
    }
  }
}

TEST_P(SmallKernels, ActivationsAndSoftBounds) {
  for (const bool extremes : {false, true}) {
    for (const int64_t n : kLengths) {
      for (const size_t offset : {0, 1, 3}) {
        auto x = values(n + 3, static_cast<uint64_t>(n), extremes), up = values(n + 3, 98, extremes);
        for (float& value : x) value *= 4;  // to where they level out
        const auto each = [&](const KernelFunctions& kernels, int which, float* y) {
          if (which < static_cast<int>(ops::kNActivationFunctions))
            return kernels.activate[which](x.data() + offset, n, y);
          if (which == static_cast<int>(ops::kNActivationFunctions))
            return kernels.softcap(x.data() + offset, 30.0f, n, y);
          kernels.clamped_gate(x.data() + offset, up.data() + offset, 1.702f, 7.0f, n, y);
        };
        for (int which = 0; which < static_cast<int>(ops::kNActivationFunctions) + 2; ++which) {
          std::vector<float> a(x.size()), b = a;
          each(reference, which, a.data() + offset);
          each(fast, which, b.data() + offset);
          EXPECT_EQ(bits_of(a), bits_of(b)) << "function " << which << ", " << n << " + " << offset;
        }
      }
    }
  }
}

TEST_P(SmallKernels, LayerNorm) {
  for (const float scale : {1.0f, 1e-20f, 1e19f}) {
    for (const int64_t n : kLengths) {
      for (const int offset : {0, 3}) {
        auto x = values(n + offset, static_cast<uint64_t>(n), false);
        for (float& value : x) value = (value + 3) * scale;
        const auto w = values(n + offset, 7, false), bias = values(n + offset, 8, false);
        for (int with = 0; with < 4; ++with) {
          const float *own_w = (with & 1) != 0 ? w.data() + offset : nullptr,
                      *own_bias = (with & 2) != 0 ? bias.data() + offset : nullptr;
          std::vector<float> a(x.size()), b = x;
          reference.layer_norm(x.data() + offset, own_w, own_bias, 1e-5f, n, a.data() + offset);
          fast.layer_norm(b.data() + offset, own_w, own_bias, 1e-5f, n, b.data() + offset);
          for (int i = 0; i < offset; ++i) b[static_cast<size_t>(i)] = 0;
          EXPECT_EQ(bits_of(a), bits_of(b)) << n << " + " << offset << ", " << with << " times " << scale;
        }
      }
    }
  }
}

TEST_P(SmallKernels, ExpertSum) {
  for (const bool extremes : {false, true}) {
    for (const int64_t n : kLengths) {
      for (const int64_t n_used : {1, 2, 5}) {
        const auto x = values(n * n_used, static_cast<uint64_t>(n), extremes), weights = values(n_used, 9, extremes);
        for (const float* weight : {weights.data(), static_cast<const float*>(nullptr)}) {
          std::vector<float> a(static_cast<size_t>(n)), b = a;
          reference.expert_sum(x.data(), weight, n_used, n, a.data());
          fast.expert_sum(x.data(), weight, n_used, n, b.data());
          EXPECT_EQ(bits_of(a), bits_of(b)) << n << " from " << n_used << (weight != nullptr ? " weighted" : "");
        }
      }
    }
  }
}

TEST_P(SmallKernels, Rope) {
  for (const int64_t head_dim : {2, 16, 30, 64, 66, 80, 100, 128, 256}) {
    for (const int64_t dim : {head_dim, head_dim / 4 * 2}) {
      for (const bool interleaved : {true, false}) {
        const auto x = values(head_dim, 3, false), cos = values(dim / 2, 4, false), sin = values(dim / 2, 5, false);
        std::vector<float> a(x.size()), b = x;
        reference.rope(x.data(), cos.data(), sin.data(), dim, interleaved, head_dim, a.data());
        fast.rope(b.data(), cos.data(), sin.data(), dim, interleaved, head_dim, b.data());
        EXPECT_EQ(bits_of(a), bits_of(b)) << dim << " of " << head_dim << (interleaved ? " interleaved" : " in halves");
      }
    }
  }
}

// ---- Attention.

struct Shape {
  int64_t head_dim, n_group, n_tokens, position, window;
  int64_t v_dim = 0;  // 0: head_dim
  float softcap = 0;
  bool sinks = false;
  bool values_in_keys = false;
};

ops::ExecutorOptions cache_options(ops::CacheType k, ops::CacheType v, int64_t n_ctx) {
  ops::ExecutorOptions options;
  options.n_ctx = n_ctx;
  options.n_sequences = 2;
  options.cache_k = k;
  options.cache_v = v;
  return options;
}

// Sequence 0 with n_positions; scattered: from the pool's last page to its first.
void make_sequence(KvCache& cache, int64_t n_positions, bool scattered) {
  if (!scattered) return cache.extend(0, n_positions);
  const int64_t n_pages = pages::pages_of(n_positions);
  cache.extend(1, n_pages * kCachePage);
  for (int64_t i = n_pages; i-- > 0;) {
    cache.truncate(1, i * kCachePage);
    cache.extend(0, std::min(kCachePage, n_positions - cache.tables().n_positions(0)));
  }
}

void fill(const KernelFunctions& kernels, const CacheHead& head, int64_t n_positions, uint64_t seed, bool extremes) {
  std::vector<std::byte> scratch(static_cast<size_t>(std::max(head.head_dim, head.v_dim) + 16) * 4);
  for (int64_t position = 0; position < n_positions; ++position) {
    const auto row = static_cast<uint64_t>(position);
    kernels.store_key(head, position, values(head.head_dim, seed + 2 * row, extremes).data(), scratch.data());
    if (!head.values_in_keys())
      kernels.store_value(head, position, values(head.v_dim, seed + 2 * row + 1, extremes).data(), scratch.data());
  }
}

std::vector<std::byte> contents(const KvCache& cache, int64_t n_positions) {
  std::vector<std::byte> all;
  cache.visit(0, n_positions, [&](std::span<const std::byte> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}

struct Attended {
  std::vector<float> whole, in_segments;
};

Attended attend(const KernelFunctions& kernels, const CacheHead& head, const Shape& shape,
                const std::vector<float>& q) {
  const auto n_y = static_cast<size_t>(shape.n_group * shape.n_tokens * head.v_dim);
  Attended result{std::vector<float>(n_y), std::vector<float>(n_y)};
  const std::vector<float> sinks = values(shape.n_group, 77, false);
  std::vector<std::byte> scratch(
      kernels.attention_scratch_bytes(head.head_dim, head.v_dim, shape.position + shape.n_tokens));
  const int64_t n_rows = shape.n_group * shape.n_tokens;
  for (int64_t begin = 0; begin < n_rows; begin += kAttentionRows) {
    AttentionBlock block;
    block.cache = head;
    block.scale = 0.125f;
    block.softcap = shape.softcap;
    block.n_rows = std::min(kAttentionRows, n_rows - begin);
    for (int64_t i = 0; i < block.n_rows; ++i) {
      block.q[i] = q.data() + (begin + i) * head.head_dim;
      block.y[i] = result.whole.data() + (begin + i) * head.v_dim;
      if (shape.sinks) block.sink[i] = sinks.data() + (begin + i) % shape.n_group;
      block.last[i] = shape.position + (begin + i) / shape.n_group;
      block.first[i] = ops::first_visible(block.last[i], shape.window);
    }
    kernels.attention(block, scratch.data());
    if (kernels.attention_segment == nullptr) continue;
    for (int64_t i = 0; i < block.n_rows; ++i) block.y[i] = result.in_segments.data() + (begin + i) * head.v_dim;
    const int64_t first = block.first[0] / ops::kAttentionSegment;
    const int64_t n_segments = block.last[block.n_rows - 1] / ops::kAttentionSegment - first + 1;
    const int64_t floats = partial_floats(head.v_cols);
    std::vector<float> partials(static_cast<size_t>(n_segments * floats));
    for (int64_t i = 0; i < n_segments; ++i)
      kernels.attention_segment(block, first + i, partials.data() + i * floats, scratch.data());
    kernels.attention_merge(block, first, n_segments, partials.data());
  }
  return result;
}

void expect_same_attention(Kernels set, const Shape& shape, ops::CacheType k, ops::CacheType v, bool extremes) {
  const int64_t n_positions = shape.position + shape.n_tokens;
  const ops::CacheLayer layer{1, shape.head_dim, shape.window, shape.v_dim, shape.values_in_keys};
  KvCache cache_a(std::span(&layer, 1), cache_options(k, v, n_positions));
  KvCache cache_b(std::span(&layer, 1), cache_options(k, v, n_positions));
  make_sequence(cache_a, n_positions, false);
  make_sequence(cache_b, n_positions, true);
  const KernelFunctions reference = make_kernels(Kernels::reference), fast = make_kernels(set);
  fill(reference, cache_a.head(0, 0, 0), n_positions, 11, extremes);
  fill(fast, cache_b.head(0, 0, 0), n_positions, 11, extremes);
  ASSERT_EQ(contents(cache_a, n_positions), contents(cache_b, n_positions));
  const auto q = values(shape.n_group * shape.n_tokens * shape.head_dim, 5, false);
  const Attended a = attend(reference, cache_a.head(0, 0, 0), shape, q),
                 b = attend(fast, cache_b.head(0, 0, 0), shape, q);
  const auto name = testing::Message() << "head_dim " << shape.head_dim << " group " << shape.n_group << " tokens "
                                       << shape.n_tokens << " position " << shape.position << " window " << shape.window
                                       << " v_dim " << shape.v_dim << " softcap " << shape.softcap << " types "
                                       << static_cast<int>(k) << static_cast<int>(v);
  EXPECT_EQ(bits_of(a.whole), bits_of(b.whole)) << name;
  EXPECT_EQ(bits_of(a.whole), bits_of(b.in_segments)) << name << " in segments";
}

using ops::CacheType;

TEST_P(SmallKernels, AttentionOverShapes) {
  for (const int64_t head_dim : {16, 40, 64, 80, 128, 256}) {
    for (const int64_t n_group : {1, 2, 3, 4, 5, 7, 8, 13}) {
      expect_same_attention(GetParam(), {head_dim, n_group, 3, 30, 0}, CacheType::f16, CacheType::f16, false);
    }
  }
}

TEST_P(SmallKernels, AttentionWithSoftcapSinksAndNarrowValues) {
  const auto widths = test::unless_slow<std::vector<int64_t>>({0, 32, 96, 192}, {0, 96});
  const auto positions = test::unless_slow<std::vector<int64_t>>({0, 40, 300, 600}, {40, 300});
  for (const CacheType type : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
    for (const int64_t v_dim : widths) {
      for (const int64_t position : positions) {
        expect_same_attention(GetParam(), {64, 3, 5, position, 0, v_dim, 0.5f, true}, type, type, false);
        expect_same_attention(GetParam(), {128, 2, 1, position, 50, v_dim, 0, true}, type, type, false);
        expect_same_attention(GetParam(), {64, 4, 9, position, 0, v_dim, 20.0f, false}, type, type, true);
      }
    }
  }
}

TEST_P(SmallKernels, AttentionWhoseValuesLieInItsKeys) {
  for (const CacheType type : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
    for (const int64_t v_dim : {7, 33, 64}) {
      for (const int64_t position : test::unless_slow<std::vector<int64_t>>({0, 40, 600}, {40, 300})) {
        for (const int64_t window : {0, 37}) {
          expect_same_attention(GetParam(), {64, 5, 7, position, window, v_dim, 0, false, true}, type, CacheType::f16,
                                false);
          expect_same_attention(GetParam(), {96, 16, 1, position, window, v_dim, 0, false, true}, type, CacheType::q8_0,
                                true);
        }
      }
    }
  }
}

TEST_P(SmallKernels, AttentionAtSegmentEdges) {
  for (const int64_t position : {0, 1, 31, 32, 33, 250, 254, 255, 256, 257, 510, 512, 700}) {
    for (const int64_t n_tokens : test::unless_slow<std::vector<int64_t>>({1, 2, 5, 9}, {1, 9})) {
      for (const int64_t window :
           test::unless_slow<std::vector<int64_t>>({0, 1, 2, 5, 32, 200, 256, 300}, {0, 2, 200, 256})) {
        expect_same_attention(GetParam(), {16, 3, n_tokens, position, window}, CacheType::f16, CacheType::f16, false);
      }
    }
  }
}

TEST_P(SmallKernels, AttentionOverCacheTypes) {
  for (const CacheType k : {CacheType::f32, CacheType::f16, CacheType::q8_0}) {
    for (const CacheType v : {CacheType::f32, CacheType::f16, CacheType::q8_0}) {
      for (const int64_t head_dim : test::unless_slow<std::vector<int64_t>>({32, 64, 96, 160}, {64, 160})) {
        expect_same_attention(GetParam(), {head_dim, 4, 5, 290, 0}, k, v, false);
        expect_same_attention(GetParam(), {head_dim, 1, 1, 40, 20}, k, v, false);
      }
    }
  }
}

// Into halves and back: every half, every middle between two and the floats beside it; a single visible position gives
// its value back.
TEST_P(SmallKernels, EveryHalfOfTheCache) {
  constexpr int64_t kHeadDim = 256;
  const ops::CacheLayer layer{1, kHeadDim, 0};
  KvCache cache_a(std::span(&layer, 1), cache_options(CacheType::f16, CacheType::f16, 32));
  KvCache cache_b(std::span(&layer, 1), cache_options(CacheType::f16, CacheType::f16, 32));
  make_sequence(cache_a, 1, false);
  make_sequence(cache_b, 1, false);
  const CacheHead head_a = cache_a.head(0, 0, 0), head_b = cache_b.head(0, 0, 0);
  const std::vector<float> q(kHeadDim, 0.0f);
  std::vector<float> x(kHeadDim);
  std::vector<std::byte> scratch((kHeadDim + 16) * 4);
  for (uint32_t first = 0; first < 0x10000; first += kHeadDim) {
    for (const uint32_t place : {0u, 0xFFFu, 0x1000u, 0x1001u}) {  // bits below a half's last one
      for (uint32_t i = 0; i < kHeadDim; ++i)
        x[i] =
            std::bit_cast<float>(std::bit_cast<uint32_t>(num::half_to_float(static_cast<uint16_t>(first + i))) + place);
      for (const bool key : {true, false}) {
        (key ? reference.store_key : reference.store_value)(head_a, 0, x.data(), scratch.data());
        (key ? fast.store_key : fast.store_value)(head_b, 0, x.data(), scratch.data());
      }
      ASSERT_EQ(contents(cache_a, 1), contents(cache_b, 1)) << first << " + " << place;
    }
    const Shape shape{kHeadDim, 1, 1, 0, 0};
    EXPECT_EQ(bits_of(attend(reference, head_a, shape, q).whole), bits_of(attend(fast, head_b, shape, q).whole))
        << first;
  }
}

// A poisoned key or value must reach exactly those who may see it.
TEST_P(SmallKernels, AttentionKeepsPoisonVisible) {
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8_0}) {
    for (const int64_t window : {0, 3, 100})
      expect_same_attention(GetParam(), {32, 2, 12, 250, window}, type, type, true);
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SmallKernels);  // where only the reference runs
INSTANTIATE_TEST_SUITE_P(Sets, SmallKernels, testing::ValuesIn(fast_kernel_sets()),
                         [](const auto& set) { return test_name(set.param); });

}  // namespace
}  // namespace assay::backend::cpu
