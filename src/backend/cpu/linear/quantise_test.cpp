// The kernels that quantise activations against the scalar reference, bit by bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/sets/kernel_sets.h"
#include "support/random_weights.h"

namespace assay::backend::cpu {
namespace {

using quant::Activation;
using quant::Activations;

struct Quantised {
  std::vector<std::byte> memory;
  Activations view;
  Quantised(Activation kind, int planes, int64_t rows, int64_t k)
      : memory(quant::activations_bytes(kind, planes, rows, k) + 64, std::byte{0x5A}) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    view = quant::carve(kind, planes, rows, k, memory.data() + (64 - address % 64) % 64);
  }
};

void expect_equal(const Activations& a, const Activations& b) {
  const auto n = static_cast<size_t>(a.n_rows * a.k), n_sums = n / static_cast<size_t>(a.group());
  EXPECT_EQ(std::memcmp(a.q, b.q, n), 0);
  EXPECT_EQ(std::memcmp(a.q_sums, b.q_sums, 2 * n_sums), 0);
  if (a.planes == 2) {
    EXPECT_EQ(std::memcmp(a.l, b.l, n), 0);
    EXPECT_EQ(std::memcmp(a.l_sums, b.l_sums, 2 * n_sums), 0);
  }
  for (size_t i = 0; i < n / static_cast<size_t>(a.block()); ++i) {
    EXPECT_TRUE(std::bit_cast<uint32_t>(a.d[i]) == std::bit_cast<uint32_t>(b.d[i]) ||
                (std::isnan(a.d[i]) && std::isnan(b.d[i])));
  }
}

// Rows of many scales: ties, tiny and huge blocks, zeros, poison.
std::vector<float> rows_of_all_kinds(int64_t rows, int64_t k) {
  constexpr float kScales[] = {1, 1e-5f, 1e30f, 1e-30f, 0x1p-100f, 0x1p-101f, 1e-42f, 0, 127, 0.5f, 2.6e36f};
  constexpr float kPoison[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  test::Random random(5);
  std::vector<float> x(static_cast<size_t>(rows * k));
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    const float scale = kScales[random.below(11)];
    const bool whole = random.below(4) == 0;  // integers and halves up to 127 make ties
    for (size_t j = begin; j < begin + 32; ++j)
      x[j] = scale * (whole ? static_cast<float>(random.below(509) - 254) / 2 : random.normal());
    if (random.below(30) == 0) x[begin + static_cast<size_t>(random.below(32))] = kPoison[random.below(3)];
  }
  return x;
}

TEST(Quantise, EqualsTheReference) {
  if (fast_kernel_sets().empty()) GTEST_SKIP() << "no kernels on this processor";
  for (const Activation kind : {Activation::a32, Activation::a256}) {
    for (const int planes : {1, 2}) {
      for (const int64_t k : {256, 768, 2560}) {
        constexpr int64_t kRows = 40;
        std::vector<float> x = rows_of_all_kinds(kRows, k + 32);  // stride k + 32
        Quantised wanted(kind, planes, kRows, k);
        const tensor::ConstMat mat(x.data(), kRows, k, k + 32);
        for (int64_t r = 0; r < kRows; ++r) quant::quantise_row_ref(mat.row(r), wanted.view, r);
        for (const Kernels set : fast_kernel_sets()) {
          Quantised got(kind, planes, kRows, k);
          quantise_rows(set, mat, got.view, 0, 17);
          quantise_rows(set, mat, got.view, 17, kRows);
          expect_equal(wanted.view, got.view);
        }
      }
    }
  }
}

}  // namespace
}  // namespace assay::backend::cpu
