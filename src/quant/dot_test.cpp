// The dots of the contract: exact terms, the order of the chain, poison, and golden digests, so that nobody changes the
// contract unseen.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "num/lanes.h"
#include "quant/activations.h"
#include "support/json_facts.h"
#include "support/random_weights.h"

namespace assay::quant {
namespace {

using tensor::DType;

struct QuantisedRow {
  std::vector<std::byte> memory;
  Activations a;
};

QuantisedRow quantised_row(const std::vector<float>& x, Activation kind, int planes) {
  const auto k = static_cast<int64_t>(x.size());
  QuantisedRow row;
  row.memory.resize(activations_bytes(kind, planes, 1, k));
  row.a = carve(kind, planes, 1, k, row.memory.data());
  quantise_row_ref(x.data(), row.a, 0);
  return row;
}

std::string name_of(const Format& format) { return std::string(tensor::traits(format.dtype).name); }

// d * I + m * M is the dot of the decoded block with the integers. All products are exact in double; only where the
// format has minima does decode() round, once a value.
TEST(Dot, SumsAndScalesAreTheExactDot) {
  for (const Format& format : all_formats()) {
    if (format.activation == Activation::f32) continue;
    SCOPED_TRACE(name_of(format));
    const int64_t n = tensor::traits(format.dtype).block_elements;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const std::vector<std::byte> block = test::random_weights(format, n, seed);
      test::Random random(seed + 1000);
      std::vector<int8_t> q(static_cast<size_t>(n));
      for (int8_t& value : q)
        value = static_cast<int8_t>(seed < 4 ? (seed % 2 == 0 ? 127 : -127) : random.below(255) - 127);
      std::vector<float> w(static_cast<size_t>(n));
      format.decode(block.data(), w.data());
      double sum = 0, magnitudes = 0;
      for (size_t j = 0; j < q.size(); ++j) {
        sum += static_cast<double>(w[j]) * q[j];
        magnitudes += std::abs(static_cast<double>(w[j]) * q[j]);
      }
      const IntegerSums sums = format.sums(block.data(), q.data());
      const BlockScales s = format.scales(block.data());
      const double term = static_cast<double>(s.d) * sums.i + static_cast<double>(s.m) * sums.m;
      if (format.has_min) {
        double offsets = 0;  // the minimum may cancel: its roundings count too
        for (const int8_t value : q) offsets += std::abs(static_cast<double>(s.m) * 63 * value);
        EXPECT_NEAR(term, sum, (magnitudes + offsets) * 0x1p-24);
      } else {
        EXPECT_EQ(term, sum);
        EXPECT_EQ(sums.m, 0);
      }
    }
  }
}

// The whole dot against plain loops in double over what the integers mean.
TEST(Dot, IsTheDotOfTheDecodedRowAndTheQuantisedActivations) {
  for (const Format& format : all_formats()) {
    SCOPED_TRACE(name_of(format));
    for (const int64_t k : {256, 768, 2048, 2560}) {
      const std::vector<std::byte> weights = test::random_weights(format, k, 5);
      const std::vector<float> x = test::random_activations(k, 6);
      std::vector<float> w(x.size());
      decode_row(format, weights.data(), k, w.data());
      double exact = 0, magnitudes = 0;
      for (size_t j = 0; j < x.size(); ++j) {
        exact += static_cast<double>(w[j]) * x[j];
        magnitudes += std::abs(static_cast<double>(w[j]) * x[j]);
      }
      EXPECT_NEAR(dot_f32_ref(format, weights.data(), x.data(), k), exact, magnitudes * 0x1p-22);
      if (format.activation == Activation::f32) continue;
      for (const int planes : {1, 2}) {
        const QuantisedRow row = quantised_row(x, format.activation, planes);
        double meant = 0;
        for (size_t j = 0; j < x.size(); ++j) {
          const double refinement = planes == 2 ? row.a.l[j] / 128.0 : 0.0;
          meant += w[j] * row.a.d[static_cast<int64_t>(j) / row.a.block()] * (row.a.q[j] + refinement);
        }
        EXPECT_NEAR(dot_ref(format, weights.data(), row.a, 0), meant, magnitudes * 0x1p-20);
        const double bits = planes == 2 ? 0x1p-12 : 0x1p-5;
        EXPECT_NEAR(meant, exact, magnitudes * bits);
      }
    }
  }
}

TEST(Dot, TakesTheRowAskedFor) {
  const Format& format = *find_format(DType::Q4_K);
  constexpr int64_t k = 512;
  const std::vector<std::byte> weights = test::random_weights(format, k, 1);
  std::vector<std::byte> memory(activations_bytes(Activation::a256, 2, 3, k));
  const Activations three = carve(Activation::a256, 2, 3, k, memory.data());
  for (int64_t r = 0; r < 3; ++r)
    quantise_row_ref(test::random_activations(k, 10 + static_cast<uint64_t>(r)).data(), three, r);
  for (int64_t r = 0; r < 3; ++r) {
    const QuantisedRow alone =
        quantised_row(test::random_activations(k, 10 + static_cast<uint64_t>(r)), Activation::a256, 2);
    EXPECT_EQ(dot_ref(format, weights.data(), three, r), dot_ref(format, weights.data(), alone.a, 0));
  }
}

TEST(Dot, PoisonStaysVisibleAndZeroStaysZero) {
  for (const Format& format : all_formats()) {
    SCOPED_TRACE(name_of(format));
    constexpr int64_t k = 1024;
    const std::vector<std::byte> weights = test::random_weights(format, k, 2);
    std::vector<float> x(k, 0.0f);
    for (float& value : x) value = -value;
    const Activation kind = format.activation == Activation::f32 ? Activation::a32 : format.activation;
    const auto dots = [&] {
      std::vector<float> results = {dot_f32_ref(format, weights.data(), x.data(), k)};
      if (format.activation == Activation::f32) return results;
      for (const int planes : {1, 2})
        results.push_back(dot_ref(format, weights.data(), quantised_row(x, kind, planes).a, 0));
      return results;
    };
    for (const float y : dots()) EXPECT_EQ(y, 0.0f);
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      x[777] = poison;
      for (const float y : dots()) EXPECT_FALSE(std::isfinite(y));
    }
  }
}

// The order written out once more, by hand, for a float format: chunks of whole 32s, Lanes32 in each, the tree.
TEST(Dot, FloatOrderWithRaggedTails) {
  const Format& format = *find_format(DType::F32);
  for (const int64_t k : {1, 31, 32, 33, 255, 256, 257, 500, 1000}) {
    const std::vector<std::byte> weights = test::random_weights(format, k, 3);
    const std::vector<float> x = test::random_activations(k, 4);
    std::vector<float> w(x.size());
    decode_row(format, weights.data(), k, w.data());
    const int64_t n = (k + 31) / 32;
    float c[8];
    for (int64_t i = 0; i < 8; ++i) {
      float lane[32] = {};
      for (int64_t j = 32 * (i * n / 8); j < 32 * ((i + 1) * n / 8) && j < k; ++j) {
        lane[j % 32] = std::fma(w[static_cast<size_t>(j)], x[static_cast<size_t>(j)], lane[j % 32]);
      }
      for (int width = 16; width >= 1; width /= 2) {
        for (int j = 0; j < width; ++j) lane[j] = lane[j] + lane[j + width];
      }
      c[i] = lane[0];
    }
    const float expected = ((c[0] + c[1]) + (c[2] + c[3])) + ((c[4] + c[5]) + (c[6] + c[7]));
    EXPECT_EQ(dot_f32_ref(format, weights.data(), x.data(), k), expected) << k;
  }
}

// Rows of the facts, evaluated elsewhere in rational arithmetic with each rounding done by hand
// (tests/data/make_dots.py).
TEST(Dot, EqualsTheFormulasInRationalArithmetic) {
  const boost::json::value dots = test::read_json("dots.json"), blocks = test::read_json("blocks.json");
  EXPECT_EQ(dots.as_object().size(), 21u);
  for (const auto& [key, expected] : dots.as_object()) {
    const Format& format = *test::format_named(std::string_view(key.data(), key.size()));
    SCOPED_TRACE(name_of(format));
    std::vector<std::byte> row;
    for (int b = 0; b < 8; ++b) {
      const std::vector<std::byte> block =
          test::from_hex(test::text(blocks.at(key).at("blocks").as_array().at(static_cast<size_t>(b))));
      row.insert(row.end(), block.begin(), block.end());
    }
    std::vector<float> x(static_cast<size_t>(8 * tensor::traits(format.dtype).block_elements));
    for (size_t j = 0; j < x.size(); ++j) {
      x[j] = static_cast<float>(static_cast<int>((j * 7919 + 13) % 2003) - 1001) / 512.0f * (j % 97 == 0 ? 9.0f : 1.0f);
    }
    const boost::json::array& results = expected.as_array();
    const auto bits = [&results](size_t i) {
      return static_cast<uint32_t>(std::stoul(std::string(test::text(results.at(i))), nullptr, 16));
    };
    EXPECT_EQ(std::bit_cast<uint32_t>(dot_ref(format, row.data(), quantised_row(x, format.activation, 2).a, 0)),
              bits(0));
    EXPECT_EQ(std::bit_cast<uint32_t>(dot_ref(format, row.data(), quantised_row(x, format.activation, 1).a, 0)),
              bits(1));
    EXPECT_EQ(std::bit_cast<uint32_t>(dot_f32_ref(format, row.data(), x.data(), static_cast<int64_t>(x.size()))),
              bits(2));
  }
}

// One digest a format over rows of several lengths: two planes, one plane, f32. Numerics 1. A change here is a new
// version of the contract, never a repair of the test.
struct Golden {
  uint64_t two_planes, one_plane, f32;
};

Golden digests(const Format& format) {
  test::Digest two, one, f32;
  for (const int64_t k : {256, 512, 1280, 2304, 5632}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<std::byte> weights = test::random_weights(format, k, 100 + seed);
      const std::vector<float> x = test::random_activations(k, 200 + seed);
      f32.add(dot_f32_ref(format, weights.data(), x.data(), k));
      if (format.activation == Activation::f32) continue;
      two.add(dot_ref(format, weights.data(), quantised_row(x, format.activation, 2).a, 0));
      one.add(dot_ref(format, weights.data(), quantised_row(x, format.activation, 1).a, 0));
    }
  }
  return {two.value(), one.value(), f32.value()};
}

TEST(Dot, GoldenDigests) {
  const std::map<std::string, Golden> golden = {
      {"F32", {0xcbf29ce484222325, 0xcbf29ce484222325, 0x12813dd15ad70925}},
      {"F16", {0xcbf29ce484222325, 0xcbf29ce484222325, 0x423c50351453ace2}},
      {"BF16", {0xcbf29ce484222325, 0xcbf29ce484222325, 0x54feafe06aa776ed}},
      {"Q4_0", {0x1c24c7ca3d8f7f74, 0x43e363e074e531c7, 0x229491a681346c88}},
      {"Q4_1", {0xe9b37a4e1750c805, 0x112ff21ba9c0878, 0x7300e8f6444b2ab8}},
      {"Q5_0", {0x39ae27b948b9ff75, 0xdbef8ac82c7f6d21, 0x2cdb3e5b8165ff3d}},
      {"Q5_1", {0x7ef41eb8126488c6, 0x66b521449d57ce43, 0x88cf75173971bd59}},
      {"Q8_0", {0x64e5f2b267b6bcc, 0xa1fcdf3ea7f9a824, 0x836ad01661e6e94}},
      {"IQ4_NL", {0xd57cd56f0d075792, 0x47ebad6fc9197efb, 0xe6b33dee1eb719b}},
      {"MXFP4", {0xb0252e6c1605ca3f, 0x726f2e02523fb019, 0x48d28c4cbd5d921b}},
      {"Q2_K", {0x23ff154be026a082, 0xef0731386122267a, 0xd0f33139359cbe8}},
      {"Q3_K", {0xd54295d987f1a1e7, 0x3953331437f8f131, 0xa9fabfbc0bea58d5}},
      {"Q4_K", {0xa98dfcf44d01cdd0, 0xac40d9f3bf5e7344, 0x799694010b52a3f1}},
      {"Q5_K", {0x9874ecd34c56b44a, 0xa45838cea07298bb, 0x373745f25c081f2d}},
      {"Q6_K", {0x38c02e201cd88691, 0x56e2965ae499a28d, 0x400acf3194fc207a}},
      {"IQ2_XXS", {0x4568ea8efcfc3ca, 0xe6c45d5c9c62d60a, 0x6470333d229d3efa}},
      {"IQ2_XS", {0xfa6359998acf5678, 0xa89fa94ad98b440f, 0x68fbd3b9c9e020e2}},
      {"IQ2_S", {0x9d9f0eb041172a93, 0xa8ce4f77ba718846, 0x669d4e9b4319ddc4}},
      {"IQ3_XXS", {0x872293d76dffc85a, 0x316b638891870d5b, 0xe4ca7972250f8073}},
      {"IQ3_S", {0xc90fa4d2c1083423, 0xba76f603c45510a, 0xe192e675428e50d0}},
      {"IQ1_S", {0xe3895bbe19a67a7d, 0xe00b40e92c847c88, 0xacd15fd7d961d277}},
      {"IQ4_XS", {0xa924ec8a6408432a, 0xf6db0a570669a700, 0x85f87364e0b67501}},
      {"TQ1_0", {0x93bebd3115b50b6, 0xb5a5de68bcd4926b, 0xed592ca072434d18}},
      {"TQ2_0", {0x3da3775e8bcea438, 0xa41b0483d3863f03, 0xc3679435d7215e91}},
  };
  EXPECT_EQ(golden.size(), all_formats().size());
  for (const Format& format : all_formats()) {
    const Golden now = digests(format);
    const auto found = golden.find(name_of(format));
    const Golden kept = found == golden.end() ? Golden{} : found->second;
    const bool equal = now.two_planes == kept.two_planes && now.one_plane == kept.one_plane && now.f32 == kept.f32;
    EXPECT_TRUE(equal) << std::hex << "now: {\"" << name_of(format) << "\", {0x" << now.two_planes << ", 0x"
                       << now.one_plane << ", 0x" << now.f32 << "}},";
  }
}

}  // namespace
}  // namespace assay::quant
