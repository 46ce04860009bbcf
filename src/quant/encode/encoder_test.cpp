// The encoders: every set against the plain one by bytes, and what they find against searches through everything a
// block can hold.
#include "quant/encode/encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "num/f16.h"
#include "quant/codebooks.h"
#include "quant/format.h"
#include "support/encoder_rows.h"
#include "support/json_facts.h"
#include "support/random_numbers.h"

namespace assay::quant::encode {
namespace {

using tensor::DType;
using test::Random, test::normal_row, test::weights_row;
constexpr int64_t kColumns = test::kEncoderColumns;

constexpr Effort kEfforts[] = {Effort::fast, Effort::normal, Effort::best};

// Rows as models have them, and as no model should.
std::vector<std::vector<float>> rows() {
  std::vector<std::vector<float>> all = {normal_row(1),         normal_row(2, 3.0f), normal_row(3, 1e-7f),
                                         normal_row(4, 1e-30f), normal_row(5, 1e6f), normal_row(6, 1e12f)};
  all.emplace_back(kColumns, 0.0f);
  all.emplace_back(kColumns, -0.0f);
  all.emplace_back(kColumns, 0.37f);
  all.emplace_back(kColumns, -1e-40f);
  all.push_back(normal_row(7));
  for (float& value : all.back()) value = std::abs(value) + 4;  // far from zero
  all.emplace_back(kColumns, 0.0f);
  all.back()[300] = -65504 * 9.0f;
  all.push_back(normal_row(8));
  std::fill(all.back().begin() + 32, all.back().begin() + 96, 0.0f);
  all.emplace_back();
  for (int j = 0; j < kColumns; ++j)
    all.back().push_back(0.25f * static_cast<float>(j % 16 - 8));  // lies on Q4_0's grid
  return all;
}

std::vector<std::byte> encoded(EncodeRow encode, DType dtype, const std::vector<float>& x, const std::vector<float>* w,
                               Effort effort) {
  const tensor::DTypeTraits& t = tensor::traits(dtype);
  std::vector<std::byte> bytes(x.size() / static_cast<size_t>(t.block_elements) * static_cast<size_t>(t.block_bytes));
  encode(x.data(), w == nullptr ? nullptr : w->data(), static_cast<int64_t>(x.size()), effort, bytes.data());
  return bytes;
}

double squared_error(DType dtype, const std::vector<std::byte>& bytes, const std::vector<float>& x,
                     const std::vector<float>* w = nullptr) {
  std::vector<float> y(x.size());
  decode_row(*find_format(dtype), bytes.data(), static_cast<int64_t>(x.size()), y.data());
  double sum = 0;
  for (size_t j = 0; j < x.size(); ++j) {
    const double e = static_cast<double>(x[j]) - y[j];
    sum += (w == nullptr ? 1.0 : (*w)[j]) * e * e;
  }
  return sum;
}

double product(const std::vector<float>& x, const std::vector<float>& y, const std::vector<float>* w = nullptr) {
  double sum = 0;
  for (size_t j = 0; j < x.size(); ++j) sum += (w == nullptr ? 1.0 : (*w)[j]) * x[j] * y[j];
  return sum;
}
double energy(const std::vector<float>& x) { return product(x, x); }

std::vector<float> decoded(DType dtype, const std::vector<std::byte>& bytes, size_t n) {
  std::vector<float> y(n);
  decode_row(*find_format(dtype), bytes.data(), static_cast<int64_t>(n), y.data());
  return y;
}

// Of a block whose length is chosen for its gain: the error that is left of it at the length that fits best.
double error_of_direction(DType dtype, const std::vector<std::byte>& bytes, const std::vector<float>& x) {
  const std::vector<float> y = decoded(dtype, bytes, x.size());
  return energy(x) - product(x, y) * product(x, y) / energy(y);
}

TEST(Encoder, EverySetGivesThePlainBytes) {
  const std::span<const EncoderSet> sets = encoder_sets();
  ASSERT_EQ(sets.front().name, "plain");
  const std::vector<float> w = weights_row(9);
  int n_compared = 0;
  for (const EncoderSet& set : sets.subspan(1)) {
    if (!set.runs_here) continue;
    ++n_compared;
    for (const Encoder& fast : set.encoders) {
      const auto plain = std::find_if(sets.front().encoders.begin(), sets.front().encoders.end(),
                                      [&](const Encoder& e) { return e.dtype == fast.dtype; });
      ASSERT_NE(plain, sets.front().encoders.end());
      int i = 0;
      for (const std::vector<float>& x : rows()) {
        for (const Effort effort : kEfforts) {
          for (const std::vector<float>* weights : {static_cast<const std::vector<float>*>(nullptr), &w}) {
            EXPECT_TRUE(encoded(fast.encode, fast.dtype, x, weights, effort) ==
                        encoded(plain->encode, fast.dtype, x, weights, effort))
                << set.name << " " << tensor::traits(fast.dtype).name << " row " << i << " effort "
                << static_cast<int>(effort);
          }
        }
        ++i;
      }
    }
  }
  if (n_compared == 0) GTEST_SKIP() << "this processor runs the plain encoders alone";
}

// What every machine writes: the sets of x86-64 and, without any, 64-bit ARM (scripts/test-aarch64). A change of what
// an encoder minimises changes its number here; the rows of docs/quantize.md are then measured anew.
struct Golden {
  const char* format;
  uint64_t digest;
};
constexpr Golden kGoldens[] = {
    {"Q4_0", 0x5FCD9139F7E9BE7Fu},   {"Q4_1", 0x4646475958A36BF2u},  {"Q5_0", 0xE14E8B5E648C269Du},
    {"Q5_1", 0xBE019FCCFFFA3ECFu},   {"Q8_0", 0xD08410750043E7F2u},  {"IQ4_NL", 0x8D237265D48A5F60u},
    {"MXFP4", 0x7174A87D5311B67Cu},  {"Q2_K", 0xEBCD0122695EDD5Bu},  {"Q3_K", 0xB231934641AEBF9Eu},
    {"Q4_K", 0x00CF6C75FD0378C5u},   {"Q5_K", 0x6F6E840945E00EBEu},  {"Q6_K", 0x5E419839BE0D8010u},
    {"IQ4_XS", 0xE67FBC0A55945501u}, {"IQ1_S", 0xB730AE498B074FFDu}, {"IQ2_XXS", 0x7E088C21F2880865u},
    {"IQ2_XS", 0xCA938BE5E24739F5u}, {"IQ2_S", 0x2D82E540C0DEC7D7u}, {"IQ3_XXS", 0xC4742D0173B56EEFu},
    {"IQ3_S", 0xB55C2A74AD726371u},  {"F32", 0x241A60964327BDB9u},   {"F16", 0x7AAEAF20C2597CB9u},
    {"BF16", 0x3FE17D941FFB0045u},   {"TQ1_0", 0x99738BC36E78363Du}, {"TQ2_0", 0x334D8EC355F5632Cu},
};

TEST(Encoder, BytesAreTheSameOnEveryMachine) {
  Random random(77);
  std::vector<float> w(kColumns);  // by sums and products alone, which are the same everywhere
  for (float& value : w) {
    const float x = random.normal();
    value = x * x * x * x;
  }
  w[5] = 0;
  for (const Encoder& e : encoder_sets().front().encoders) {
    test::Digest digest;
    for (const std::vector<float>& x : rows()) {
      for (const Effort effort : kEfforts) {
        for (const std::vector<float>* weights : {static_cast<const std::vector<float>*>(nullptr), &std::as_const(w)}) {
          for (const std::byte byte : encoded(find_encoder(e.dtype), e.dtype, x, weights, effort)) digest.add(byte);
        }
      }
    }
    const std::string_view name = tensor::traits(e.dtype).name;
    const auto* const golden =
        std::find_if(std::begin(kGoldens), std::end(kGoldens), [&](const Golden& g) { return name == g.format; });
    ASSERT_NE(golden, std::end(kGoldens)) << name;
    EXPECT_EQ(digest.value(), golden->digest) << name << std::hex << " 0x" << digest.value();
  }
  EXPECT_EQ(std::size(kGoldens), encoder_sets().front().encoders.size());
}

TEST(Encoder, ARowIsTheSameInPartsAndInPlace) {
  const std::vector<float> x = normal_row(21);
  for (const Encoder& e : encoder_sets().front().encoders) {
    const auto whole = encoded(find_encoder(e.dtype), e.dtype, x, nullptr, Effort::normal);
    const auto first = encoded(find_encoder(e.dtype), e.dtype, {x.begin(), x.begin() + 256}, nullptr, Effort::normal);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), whole.begin())) << tensor::traits(e.dtype).name;
  }
}

// Errors of ggml's encoders on the same rows (tests/data/make_encoder_errors.cpp), without and with weights.
TEST(Encoder, ErrorsAreBelowThoseOfGgml) {
  const boost::json::value facts = test::read_json("encoder_errors.json");
  for (const auto& [key, errors] : facts.as_object()) {
    const std::string name(key.data(), key.size());
    const DType dtype = test::format_named(name)->dtype;
    for (const bool weighted : {false, true}) {
      double lost = 0;
      for (uint64_t seed = 30; seed < 38; ++seed) {
        const std::vector<float> x = normal_row(seed), w = weights_row(seed);
        lost += squared_error(dtype, encoded(find_encoder(dtype), dtype, x, weighted ? &w : nullptr, Effort::normal), x,
                              weighted ? &w : nullptr);
      }
      const double theirs = errors.at(weighted ? "weighted" : "plain").as_double();
      EXPECT_LT(lost, theirs) << name << (weighted ? " weighted" : "");
      EXPECT_GT(lost, 0.1 * theirs) << name << ": better than it can be";
    }
  }
}

TEST(Encoder, FloatsAreRoundedOnce) {
  const std::vector<float> x = normal_row(31);
  EXPECT_EQ(squared_error(DType::F32, encoded(find_encoder(DType::F32), DType::F32, x, nullptr, Effort::normal), x), 0);
  for (const DType dtype : {DType::F16, DType::BF16}) {
    const std::vector<std::byte> bytes = encoded(find_encoder(dtype), dtype, x, nullptr, Effort::normal);
    for (size_t j = 0; j < x.size(); ++j) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * j, 2);
      EXPECT_EQ(bits, dtype == DType::F16 ? num::float_to_half(x[j]) : num::float_to_bf16(x[j]));
    }
  }
}

TEST(Encoder, MoreEffortIsNeverWorse) {
  const std::vector<float> w = weights_row(11);
  for (const Encoder& e : encoder_sets().front().encoders) {
    for (uint64_t seed = 40; seed < 44; ++seed) {
      const std::vector<float> x = normal_row(seed);
      double before = 1e30;
      for (const Effort effort : kEfforts) {
        double error = squared_error(e.dtype, encoded(find_encoder(e.dtype), e.dtype, x, &w, effort), x, &w);
        EXPECT_LE(error, before * 1.02) << tensor::traits(e.dtype).name << " effort " << static_cast<int>(effort);
        before = error;
      }
    }
  }
}

// The smallest error of 32 elements over every half-precision scale, levels chosen by trying all.
double best_by_trying(const std::vector<float>& x, const std::vector<float>& levels) {
  double best = 1e300;
  for (uint32_t half = 1; half < 0x7C00; ++half) {
    for (const double sign : {1.0, -1.0}) {
      const double d = sign * num::half_to_float(static_cast<uint16_t>(half));
      double sum = 0;
      for (const float value : x) {
        double nearest = 1e300;
        for (const float level : levels) nearest = std::min(nearest, std::abs(value - d * level));
        sum += nearest * nearest;
        if (sum >= best) break;
      }
      best = std::min(best, sum);
    }
  }
  return best;
}

std::vector<float> whole_numbers(int low, int high) {
  std::vector<float> levels;
  for (int level = low; level <= high; ++level) levels.push_back(static_cast<float>(level));
  return levels;
}

TEST(Encoder, FormatsOfOneScaleComeNearTheBestThereIs) {
  const struct {
    DType dtype;
    std::vector<float> levels;
    double normal, best;  // over the optimum, mean of the blocks
  } cases[] = {{DType::Q4_0, whole_numbers(-8, 7), 1.03, 1.005},
               {DType::IQ4_NL, {kLevelsIq4, kLevelsIq4 + 16}, 1.015, 1.005},
               {DType::Q5_0, whole_numbers(-16, 15), 1.05, 1.02}};
  for (const auto& c : cases) {
    double optimum = 0, normal = 0, best = 0;
    for (uint64_t seed = 50; seed < 54; ++seed) {
      std::vector<float> x = normal_row(seed);
      x.resize(32);
      optimum += best_by_trying(x, c.levels);
      normal += error_of_direction(c.dtype, encoded(find_encoder(c.dtype), c.dtype, x, nullptr, Effort::normal), x);
      best += error_of_direction(c.dtype, encoded(find_encoder(c.dtype), c.dtype, x, nullptr, Effort::best), x);
    }
    EXPECT_GE(normal, optimum * 0.9999);
    EXPECT_LE(normal, optimum * c.normal) << tensor::traits(c.dtype).name << " " << normal / optimum;
    EXPECT_LE(best, optimum * c.best) << tensor::traits(c.dtype).name << " " << best / optimum;
  }
}

TEST(Encoder, TernaryScalesAreTheBestThereAre) {
  std::vector<float> x = normal_row(60);
  x.resize(256);
  double best = 1e300;
  for (uint32_t half = 1; half < 0x7C00; ++half) {
    const double d = num::half_to_float(static_cast<uint16_t>(half));
    double sum = 0;
    for (const float value : x) {
      const double inside = std::abs(value) > d / 2 ? std::abs(value) - d : value;
      sum += inside * inside;
    }
    best = std::min(best, sum);
  }
  for (const DType dtype : {DType::TQ1_0, DType::TQ2_0}) {
    EXPECT_LE(error_of_direction(dtype, encoded(find_encoder(dtype), dtype, x, nullptr, Effort::normal), x),
              best * 1.0001);
    const std::vector<float> all_one(x.size(), 1.0f);
    EXPECT_LE(squared_error(dtype, encoded(find_encoder(dtype), dtype, x, &all_one, Effort::normal), x), best * 1.0001);
  }
}

// The length that least squares chooses is shorter than the weights' own by what is lost; gain.h says who gives it
// back.
TEST(Encoder, BlocksOfFewLevelsKeepTheirGain) {
  const std::vector<float> all_one(kColumns, 1.0f);
  for (const DType dtype : {DType::Q4_0, DType::IQ4_NL, DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::IQ4_XS,
                            DType::TQ1_0, DType::TQ2_0, DType::IQ3_XXS, DType::IQ3_S}) {
    for (const Effort effort : kEfforts) {
      double whole = 0, kept = 0, of_weighted = 0;
      for (uint64_t seed = 100; seed < 108; ++seed) {
        const std::vector<float> x = normal_row(seed);
        whole += energy(x);
        kept += product(x, decoded(dtype, encoded(find_encoder(dtype), dtype, x, nullptr, effort), x.size()));
        of_weighted += product(x, decoded(dtype, encoded(find_encoder(dtype), dtype, x, &all_one, effort), x.size()));
      }
      EXPECT_NEAR(kept / whole, 1, 1.5e-3) << tensor::traits(dtype).name;  // small factors have few bits
      EXPECT_LT(of_weighted / whole, 0.9965) << tensor::traits(dtype).name;
    }
  }
}

// Q3_K's own weights are a choice of levels: the error of large weights falls, that of all stays below ggml's.
TEST(Encoder, Q3KSparesLargeWeights) {
  const std::vector<float> all_one(kColumns, 1.0f);
  double of_large = 0, of_large_before = 0;
  for (uint64_t seed = 120; seed < 136; ++seed) {
    const std::vector<float> x = normal_row(seed);
    std::vector<float> large(x.size());
    for (size_t j = 0; j < x.size(); ++j) large[j] = std::abs(x[j]) > 0.03f ? 1.0f : 0.0f;  // 1.5 standard deviations
    const EncodeRow encode = find_encoder(DType::Q3_K);
    of_large += squared_error(DType::Q3_K, encoded(encode, DType::Q3_K, x, nullptr, Effort::normal), x, &large);
    of_large_before += squared_error(DType::Q3_K, encoded(encode, DType::Q3_K, x, &all_one, Effort::normal), x, &large);
  }
  EXPECT_LT(of_large, 0.9 * of_large_before);
}

// Rows of which hardly anything is left are not made longer without bound, nor are those whose squares underflow.
TEST(Encoder, GainIsBounded) {
  for (const Encoder& e : encoder_sets().front().encoders) {
    if (tensor::traits(e.dtype).block_elements == 1) continue;
    for (const float scale : {1e-7f, 3e-8f, 1e-20f, 1e-30f, 1e9f, 0x1p59f}) {
      const std::vector<float> x = normal_row(110, scale);
      const std::vector<float> y =
          decoded(e.dtype, encoded(find_encoder(e.dtype), e.dtype, x, nullptr, Effort::normal), x.size());
      for (size_t j = 0; j < x.size(); ++j)
        EXPECT_TRUE(std::isfinite(y[j])) << tensor::traits(e.dtype).name << " " << scale;
    }
  }
}

TEST(Encoder, Mxfp4TakesTheBestPowerOfTwo) {
  std::vector<float> x = normal_row(61);
  x.resize(32);
  const Format& format = *find_format(DType::MXFP4);
  double best = 1e300;
  for (int exponent = 0; exponent < 255; ++exponent) {
    double sum = 0;
    for (const float value : x) {
      double nearest = 1e300;
      for (int code = 0; code < 16; ++code) {
        std::byte block[17] = {static_cast<std::byte>(exponent), static_cast<std::byte>(code)};
        float y[32];
        format.decode(block, y);
        nearest = std::min(nearest, std::abs(static_cast<double>(value) - y[0]));
      }
      sum += nearest * nearest;
    }
    best = std::min(best, sum);
  }
  const double found =
      squared_error(DType::MXFP4, encoded(find_encoder(DType::MXFP4), DType::MXFP4, x, nullptr, Effort::normal), x);
  EXPECT_NEAR(found / best, 1.0, 1e-6);
}

TEST(Encoder, WeightsOnTheGridComeBackAsTheyWere) {
  // Models trained for a format lie on its grid: nothing may be lost.
  Random random(62);
  for (const DType dtype : {DType::Q4_0, DType::Q5_0, DType::Q8_0, DType::Q4_1, DType::Q5_1, DType::IQ4_NL}) {
    const int n_levels = dtype == DType::Q5_0 || dtype == DType::Q5_1 ? 32 : 16;
    std::vector<float> x(kColumns);
    for (int block = 0; block < kColumns / 32; ++block) {
      const float d = num::half_to_float(num::float_to_half(0.01f + 0.001f * static_cast<float>(random.below(50))));
      const float m = dtype == DType::Q4_1 || dtype == DType::Q5_1 ? 0.25f : 0;
      for (int j = 0; j < 32; ++j) {
        const int level = j < 2 ? j * (n_levels - 1) : static_cast<int>(random.below(n_levels));  // both ends occur
        const float value = dtype == DType::IQ4_NL ? d * kLevelsIq4[level]
                            : dtype == DType::Q8_0 ? d * static_cast<float>(j == 0 ? 127 : 8 * level - 64)
                            : m != 0               ? d * static_cast<float>(level) - m
                                                   : d * static_cast<float>(level - n_levels / 2);
        x[static_cast<size_t>(32 * block + j)] = value;
      }
    }
    const double lost = squared_error(dtype, encoded(find_encoder(dtype), dtype, x, nullptr, Effort::normal), x);
    EXPECT_LE(lost, 1e-12 * energy(x)) << tensor::traits(dtype).name;
  }
}

TEST(Encoder, WeightsSayWhereTheErrorGoes) {
  for (const Encoder& e : encoder_sets().front().encoders) {
    if (tensor::traits(e.dtype).block_elements == 1) continue;
    const bool few_choices = e.dtype == DType::MXFP4 || e.dtype == DType::TQ1_0 || e.dtype == DType::TQ2_0;
    double with = 0, without = 0;
    for (uint64_t seed = 70; seed < 78; ++seed) {
      const std::vector<float> x = normal_row(seed), w = weights_row(seed + 100);
      with += squared_error(e.dtype, encoded(find_encoder(e.dtype), e.dtype, x, &w, Effort::normal), x, &w);
      without += squared_error(e.dtype, encoded(find_encoder(e.dtype), e.dtype, x, nullptr, Effort::normal), x, &w);
    }
    EXPECT_LT(with, (few_choices ? 0.98 : 0.9) * without) << tensor::traits(e.dtype).name;
  }
}

TEST(Encoder, ZerosStayZeros) {
  const std::vector<float> x(kColumns, 0.0f), w = weights_row(80);
  for (const Encoder& e : encoder_sets().front().encoders) {
    for (const std::vector<float>* weights : {static_cast<const std::vector<float>*>(nullptr), &w}) {
      EXPECT_EQ(squared_error(e.dtype, encoded(find_encoder(e.dtype), e.dtype, x, weights, Effort::normal), x), 0)
          << tensor::traits(e.dtype).name;
    }
  }
}

}  // namespace
}  // namespace assay::quant::encode
