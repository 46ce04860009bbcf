// The references of the ops that work row by row, against the same formulas in double and plain loops; and where the
// contract fixes more than accuracy, its order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "num/math64.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/linear/sparse_gate.h"
#include "ops/plan/host_rows.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/match_magnitude.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "support/random_weights.h"

namespace assay::ops {
namespace {

using tensor::DType;

TEST(Embed, DecodesAndScalesEveryFormat) {
  for (const quant::Format& format : quant::all_formats()) {
    constexpr int64_t d = 512;
    const std::vector<std::byte> row = test::random_weights(format, d, 1);
    std::vector<float> decoded(d), y(d);
    quant::decode_row(format, row.data(), d, decoded.data());
    embed_ref(format, row.data(), d, 25.298221f, y.data());
    for (size_t j = 0; j < d; ++j) EXPECT_EQ(y[j], decoded[j] * 25.298221f);
    embed_ref(format, row.data(), d, 1.0f, y.data());
    EXPECT_EQ(y, decoded);
  }
}

TEST(RmsNorm, AgreesWithDouble) {
  for (const int64_t d : {1, 2, 31, 32, 33, 64, 576, 640, 1000}) {
    const std::vector<float> x = test::random_activations(d, 1), w = test::random_activations(d, 2);
    std::vector<float> y(x.size());
    rms_norm_ref(x.data(), w.data(), 1e-5f, d, y.data());
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double r = 1 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(1e-5f));
    for (size_t j = 0; j < x.size(); ++j) EXPECT_NEAR(y[j], x[j] * r * w[j], std::fabs(x[j] * r * w[j]) * 0x1p-20) << d;
  }
}

TEST(RmsNorm, EdgesAndAlias) {
  std::vector<float> x(64, 0.0f), w(64, 2.0f), y(64, 1.0f);
  rms_norm_ref(x.data(), w.data(), 1e-6f, 64, y.data());
  for (const float value : y) EXPECT_EQ(value, 0.0f);
  x[3] = std::numeric_limits<float>::quiet_NaN();
  rms_norm_ref(x.data(), w.data(), 1e-6f, 64, y.data());
  for (const float value : y) EXPECT_TRUE(std::isnan(value));
  x = test::random_activations(64, 3);
  rms_norm_ref(x.data(), w.data(), 1e-6f, 64, y.data());
  rms_norm_ref(x.data(), w.data(), 1e-6f, 64, x.data());
  EXPECT_EQ(x, y);
}

RopeSpec plain_rope(int64_t dim, bool interleaved) {
  RopeSpec spec;
  spec.dim = dim;
  spec.interleaved = interleaved;
  for (int64_t i = 0; i < dim / 2; ++i)
    spec.inverse_frequency.push_back(num::pow64(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
  return spec;
}

TEST(Rope, AgreesWithDoubleInBothOrders) {
  constexpr int64_t head_dim = 80, dim = 64;
  for (const bool interleaved : {false, true}) {
    RopeSpec spec = plain_rope(dim, interleaved);
    for (const double magnitude : {1.0, 1.25}) {
      spec.magnitude = magnitude;
      for (const int64_t position : {0, 1, 17, 4095, 131071}) {
        std::vector<float> cos(dim / 2), sin(dim / 2), y(head_dim);
        rope_angles(spec, position, cos.data(), sin.data());
        std::vector<float> x = test::random_activations(head_dim, 7);
        rope_ref(x.data(), cos.data(), sin.data(), dim, interleaved, head_dim, y.data());
        for (int64_t i = 0; i < dim / 2; ++i) {
          const auto a = static_cast<size_t>(interleaved ? 2 * i : i),
                     b = static_cast<size_t>(interleaved ? 2 * i + 1 : i + dim / 2);
          const double angle = static_cast<double>(position) * spec.inverse_frequency[static_cast<size_t>(i)];
          const double c = std::cos(angle) * magnitude, s = std::sin(angle) * magnitude;
          const double size = std::fabs(x[a]) + std::fabs(x[b]);
          EXPECT_NEAR(y[a], x[a] * c - x[b] * s, size * 0x1p-22);
          EXPECT_NEAR(y[b], x[a] * s + x[b] * c, size * 0x1p-22);
        }
        for (size_t j = dim; j < head_dim; ++j) EXPECT_EQ(y[j], x[j]);
        rope_ref(x.data(), cos.data(), sin.data(), dim, interleaved, head_dim, x.data());
        EXPECT_EQ(x, y);  // in place
      }
    }
  }
}

TEST(Rope, PositionZeroChangesNothing) {
  const RopeSpec spec = plain_rope(64, true);
  std::vector<float> cos(32), sin(32), y(64);
  rope_angles(spec, 0, cos.data(), sin.data());
  const std::vector<float> x = test::random_activations(64, 8);
  rope_ref(x.data(), cos.data(), sin.data(), 64, true, 64, y.data());
  EXPECT_EQ(x, y);
}

// The table's bits decide every key in a cache, so they are kept. Numerics 1.
TEST(Rope, TableHasGoldenBits) {
  test::Digest digest;
  const RopeSpec spec = plain_rope(128, false);
  for (int64_t position = 0; position < 200000; position += 997) {
    std::vector<float> cos(64), sin(64);
    rope_angles(spec, position, cos.data(), sin.data());
    for (size_t i = 0; i < 64; ++i) {
      digest.add(cos[i]);
      digest.add(sin[i]);
    }
  }
  EXPECT_EQ(digest.value(), 0x495eca20bb98d5e6u) << std::hex << digest.value();
}

TEST(Gate, AgreesWithDouble) {
  const std::vector<float> gate = test::random_activations(1000, 1), up = test::random_activations(1000, 2);
  std::vector<float> y(1000);
  gate_ref(ActivationFunction::silu)(gate.data(), up.data(), 1000, y.data());
  for (size_t j = 0; j < 1000; ++j) {
    const double g = gate[j], expected = g / (1 + std::exp(-g)) * up[j];
    EXPECT_NEAR(y[j], expected, std::fabs(expected) * 0x1p-20);
  }
  gate_ref(ActivationFunction::gelu_tanh)(gate.data(), up.data(), 1000, y.data());
  for (size_t j = 0; j < 1000; ++j) {
    const double g = gate[j];
    const double expected =
        0.5 * g * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (g + 0.044715 * g * g * g))) * up[j];
    EXPECT_NEAR(y[j], expected, std::fabs(expected) * 0x1p-20 + 1e-12);
  }
}

TEST(Add, RoundsOnce) {
  const std::vector<float> a = test::random_activations(100, 1), b = test::random_activations(100, 2);
  std::vector<float> y(100);
  add_ref(a.data(), b.data(), 100, y.data());
  for (size_t j = 0; j < 100; ++j) EXPECT_EQ(y[j], static_cast<float>(static_cast<double>(a[j]) + b[j]));
}

// Two rows of three heads of five elements: elements 1 and 2 of every head; and heads put together again, with parts of
// their own or one for all.
TEST(SliceAndJoin, CopyColumnsOfEveryRun) {
  Plan plan;
  for (const int64_t width : {15, 6, 3, 1, 9, 9}) plan.values.push_back({"", width});
  std::vector<float> x(30), sliced(12), own(6), shared(2), joined(18), with_shared(18);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  for (size_t i = 0; i < own.size(); ++i) own[i] = 100.0f + static_cast<float>(i);
  shared = {200, 201};
  float* const values[] = {x.data(), sliced.data(), own.data(), shared.data(), joined.data(), with_shared.data()};
  HostRows<float> rows;
  rows.plan = &plan, rows.values = values;
  Slice{0, 3, 1, 1}.run(rows, 0, 2);
  EXPECT_EQ(sliced, (std::vector<float>{1, 2, 6, 7, 11, 12, 16, 17, 21, 22, 26, 27}));
  Join{1, 2, 3, 4}.run(rows, 0, 2);
  EXPECT_EQ(joined, (std::vector<float>{1, 2, 100, 6, 7, 101, 11, 12, 102, 16, 17, 103, 21, 22, 104, 26, 27, 105}));
  Join{1, 3, 3, 5}.run(rows, 0, 2);
  EXPECT_EQ(with_shared,
            (std::vector<float>{1, 2, 200, 6, 7, 200, 11, 12, 200, 16, 17, 201, 21, 22, 201, 26, 27, 201}));
}

// A row op of two inputs or one over plain rows: the reference in float, and its formula in double.
template <class Op>
void expect_near_double(const Op& op, int64_t d, double tolerance) {
  Plan plan;
  plan.values = {{"x", d}, {"like", d}, {"y", d}};
  std::vector<float> x = test::random_activations(3 * d, 5), like = test::random_activations(3 * d, 6),
                     y(static_cast<size_t>(3 * d));
  std::vector<double> wide_x(x.begin(), x.end()), wide_like(like.begin(), like.end()), wide_y(y.size());
  float* const values[] = {x.data(), like.data(), y.data()};
  double* const wide[] = {wide_x.data(), wide_like.data(), wide_y.data()};
  HostRows<float> rows;
  rows.plan = &plan, rows.values = values;
  HostRows<double> wide_rows;
  wide_rows.plan = &plan, wide_rows.values = wide;
  op.run(rows, 0, 3);
  op.run(wide_rows, 0, 3);
  double size = 0;
  for (const double value : wide_y) size = std::max(size, std::fabs(value));
  for (size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(y[i], wide_y[i], tolerance * size) << "width " << d << ", element " << i;
}

TEST(SparseGate, AgreesWithDoubleAndKeepsWhatIsAboveTheCut) {
  for (const int64_t d : {1, 2, 31, 33, 64, 1000}) {
    for (const double factor : {0.0, 1.6448536269514722, -0.5})
      expect_near_double(SparseGate{0, factor, 2}, d, 0x1p-19);
  }
  Plan plan;
  plan.values = {{"x", 4}, {"y", 4}};
  float x[] = {1, 2, 3, 10}, y[4] = {};  // mean 4, standard deviation sqrt(12.5)
  float* const values[] = {x, y};
  HostRows<float> rows;
  rows.plan = &plan, rows.values = values;
  SparseGate{0, 1.0, 1}.run(rows, 0, 1);
  for (size_t j = 0; j < 3; ++j) EXPECT_EQ(y[j], 0.0f);
  EXPECT_NEAR(y[3], 6 - std::sqrt(12.5), 1e-6);
}

TEST(MatchMagnitude, AgreesWithDoubleAndTakesTheOthersSize) {
  for (const int64_t d : {1, 2, 31, 33, 64, 1000}) expect_near_double(MatchMagnitude{0, 1, 1e-5, 2}, d, 0x1p-19);
  Plan plan;
  plan.values = {{"x", 2}, {"like", 2}, {"y", 2}};
  float x[] = {3, 4}, like[] = {30, 40}, y[2] = {};
  float* const values[] = {x, like, y};
  HostRows<float> rows;
  rows.plan = &plan, rows.values = values;
  MatchMagnitude{0, 1, 1e-5, 2}.run(rows, 0, 1);
  EXPECT_FLOAT_EQ(y[0], 30.0f);
  EXPECT_FLOAT_EQ(y[1], 40.0f);
  x[0] = x[1] = 0;  // nothing to scale: the divisor ends at eps
  MatchMagnitude{0, 1, 1e-5, 2}.run(rows, 0, 1);
  EXPECT_EQ(y[0], 0.0f);
}

TEST(Linear, AddsTheBiasLast) {
  const quant::Format& format = *quant::find_format(DType::Q4_0);
  constexpr int64_t k = 256;
  const std::vector<std::byte> row = test::random_weights(format, k, 1);
  const std::vector<float> x = test::random_activations(k, 2);
  std::vector<std::byte> memory(quant::activations_bytes(quant::Activation::a32, 2, 1, k));
  const quant::Activations q = quant::carve(quant::Activation::a32, 2, 1, k, memory.data());
  quant::quantise_row_ref(x.data(), q, 0);
  const float bias = 3.25f;
  EXPECT_EQ(linear_ref(format, row.data(), q, 0, nullptr), quant::dot_ref(format, row.data(), q, 0));
  EXPECT_EQ(linear_ref(format, row.data(), q, 0, &bias), quant::dot_ref(format, row.data(), q, 0) + bias);
  EXPECT_EQ(linear_f32_ref(format, row.data(), x.data(), k, nullptr),
            quant::dot_f32_ref(format, row.data(), x.data(), k));
  EXPECT_EQ(linear_f32_ref(format, row.data(), x.data(), k, &bias),
            quant::dot_f32_ref(format, row.data(), x.data(), k) + bias);
}

// Numbers of transformers' sparsemixer (modeling_phimoe, jitter 0.01) in float64.
TEST(Route, SparseMixerSharesAmongTheLogitsNearTheChosenOne) {
  struct Known {
    std::vector<float> logits;
    double weights[2];
    int experts[2];
  };
  const Known kKnown[] = {
      {{1.0f, 0.99f, 0.985f, -2.0f, 0.5f, 0.9701f}, {0.33611617659138615, 0.5012499973958399}, {0, 1}},
      {{-1.05f, -1.0f, -1.015f, -1.3f}, {0.5037499296890819, 1.0}, {1, 2}},
      {{0.0f, 0.0f, -1.0f}, {0.5, 1.0}, {0, 1}},
      {{0.5f, 0.1f, 0.3f, 0.3f}, {1.0, 0.5}, {0, 2}}};
  for (const Known& known : kKnown) {
    Plan plan;
    plan.values = {{"logits", static_cast<int64_t>(known.logits.size())}, {"y", 4}};
    std::vector<float> x = known.logits, y(4);
    std::vector<double> wide_x(x.begin(), x.end()), wide_y(4);
    float* const values[] = {x.data(), y.data()};
    double* const wide[] = {wide_x.data(), wide_y.data()};
    HostRows<float> rows;
    rows.plan = &plan, rows.values = values;
    HostRows<double> wide_rows;
    wide_rows.plan = &plan, wide_rows.values = wide;
    const Route op{0, kNone, Gating::sparse_mixer, 2, false, 1.0, 1};
    op.run(rows, 0, 1);
    op.run(wide_rows, 0, 1);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(y[i], known.weights[i], 1e-7) << x[0] << ", rank " << i;
      EXPECT_NEAR(wide_y[i], known.weights[i], 1e-8) << x[0] << ", rank " << i;  // of logits that were rounded to float
      EXPECT_EQ(static_cast<int>(y[2 + i]), known.experts[i]);
      EXPECT_EQ(static_cast<int>(wide_y[2 + i]), known.experts[i]);
    }
  }
}

TEST(SelectOutputs, KeepsTheWantedRowsInOrder) {
  std::vector<float> x = {1, 2, 0, 3, 4, 0, 5, 6, 0}, y(4);
  const uint8_t outputs[3] = {1, 0, 1};
  EXPECT_EQ(select_outputs_ref({x.data(), 3, 2, 3}, outputs, {y.data(), 2, 2, 2}), 2);
  EXPECT_EQ(y, (std::vector<float>{1, 2, 5, 6}));
}

}  // namespace
}  // namespace assay::ops
