// Blocks of the codebook formats: their rows and signs against every row and every pattern of signs there is.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "quant/codebooks.h"
#include "quant/encode/encoder.h"
#include "quant/format.h"
#include "support/encoder_rows.h"

namespace assay::quant::encode {
namespace {

using tensor::DType;

struct Grid {
  DType dtype;
  int width;
  bool needs_even;  // of 8 weights an even number is negative
  std::vector<uint64_t> rows;
};

std::vector<Grid> grids() {
  return {{DType::IQ2_XXS, 8, true, {std::begin(kGridIq2Xxs), std::end(kGridIq2Xxs)}},
          {DType::IQ2_XS, 8, true, {std::begin(kGridIq2Xs), std::end(kGridIq2Xs)}},
          {DType::IQ2_S, 8, false, {std::begin(kGridIq2S), std::end(kGridIq2S)}},
          {DType::IQ3_XXS, 4, true, {std::begin(kGridIq3Xxs), std::end(kGridIq3Xxs)}},
          {DType::IQ3_S, 4, false, {std::begin(kGridIq3S), std::end(kGridIq3S)}}};
}

struct Best {
  double of_even = std::numeric_limits<double>::infinity(), of_odd = of_even;
};

// Over all rows and signs of one part, by how many signs are negative.
Best best_of_part(const Grid& grid, const float* x, const float* w, double scale) {
  Best best;
  for (const uint64_t row : grid.rows) {
    for (unsigned signs = 0; signs < 1u << grid.width; ++signs) {
      double error = 0;
      for (int j = 0; j < grid.width; ++j) {
        const double level = scale * static_cast<double>((row >> (8 * j)) & 255),
                     e = x[j] - ((signs >> j) & 1 ? -level : level);
        error += w[j] * e * e;
      }
      double& of = std::popcount(signs) % 2 == 0 ? best.of_even : best.of_odd;
      of = std::min(of, error);
    }
  }
  return best;
}

TEST(Codebook, RowsAndSignsAreTheBestForTheirScale) {
  std::vector<float> x = test::normal_row(91), w = test::weights_row(92);
  x.resize(256);
  for (const Grid& grid : grids()) {
    const Format& format = *find_format(grid.dtype);
    std::vector<std::byte> block(static_cast<size_t>(tensor::traits(grid.dtype).block_bytes));
    find_encoder(grid.dtype)(x.data(), w.data(), 256, Effort::fast, block.data());
    float y[256];
    format.decode(block.data(), y);
    Integers256 n;
    format.integers(block.data(), n);
    const double d = format.scales(block.data()).d;
    for (int i = 0; i < 256; i += grid.width == 8 ? 64 : 32) {  // some of the groups of 8
      double found = 0, even = 0, odd = std::numeric_limits<double>::infinity();
      for (int j = i; j < i + 8; ++j)
        found += w[static_cast<size_t>(j)] * (x[static_cast<size_t>(j)] - double{y[j]}) *
                 (x[static_cast<size_t>(j)] - double{y[j]});
      for (int part = i; part < i + 8; part += grid.width) {
        const Best b = best_of_part(grid, x.data() + part, w.data() + part, d * n.scale[part / 16]);
        const double next_odd = std::min(even + b.of_odd, odd + b.of_even);
        even = std::min(even + b.of_even, odd + b.of_odd);
        odd = next_odd;
      }
      const double best = grid.needs_even ? even : std::min(even, odd);
      EXPECT_LE(found, best * (1 + 1e-4) + 1e-12) << tensor::traits(grid.dtype).name << " at " << i;
      EXPECT_GE(found, best * (1 - 1e-4) - 1e-12) << tensor::traits(grid.dtype).name << " at " << i;
    }
  }
}

TEST(Codebook, RowsOfIq1AreTheBestForTheirScaleAndShift) {
  std::vector<float> x = test::normal_row(93), w = test::weights_row(94);
  x.resize(256);
  w.resize(256);
  const Format& format = *find_format(DType::IQ1_S);
  std::byte block[50];
  find_encoder(DType::IQ1_S)(x.data(), w.data(), 256, Effort::fast, block);
  float y[256];
  format.decode(block, y);
  Integers256 n;
  format.integers(block, n);
  const double d = format.scales(block).d;
  double mean_square = 0;
  for (const float value : x) mean_square += double{value} * value / 256;
  for (size_t j = 0; j < 256; ++j)  // as large_weights.h has it
    w[j] *= static_cast<float>(std::sqrt(2 + double{x[j]} * x[j] / mean_square));
  for (int i = 0; i < 256; i += 8) {
    uint16_t word;
    std::memcpy(&word, block + 34 + 2 * (i / 32), 2);
    const double scale = d * n.scale[i / 16], shift = (word & 0x8000) != 0 ? -1 : 1;
    double best = std::numeric_limits<double>::infinity(), found = 0;
    for (const uint64_t row : kGridIq1S) {
      double error = 0;
      for (int j = 0; j < 8; ++j) {
        const double e =
            x[static_cast<size_t>(i + j)] - scale * (8 * static_cast<int8_t>((row >> (8 * j)) & 255) + shift);
        error += w[static_cast<size_t>(i + j)] * e * e;
      }
      best = std::min(best, error);
    }
    for (int j = i; j < i + 8; ++j)
      found += w[static_cast<size_t>(j)] * (x[static_cast<size_t>(j)] - double{y[j]}) *
               (x[static_cast<size_t>(j)] - double{y[j]});
    EXPECT_LE(found, best * (1 + 1e-4) + 1e-12) << i;
  }
}

}  // namespace
}  // namespace assay::quant::encode
