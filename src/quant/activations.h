// Activations as integers (numerics contract, section 1): a row of f32 becomes one or two planes of int8 with one scale
// per 32 (A32) or 256 (A256) elements, and the exact sums that formats with minima or offsets need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace assay::quant {

// Quantised rows; views into memory of the caller. Row r of q begins at q + r * k. k is a multiple of the block.
// Sums are over groups of 32 elements for A32 and 16 for A256: row r begins at q_sums + r * (k / group).
struct Activations {
  Activation kind = Activation::a32;
  int planes = 2;  // 1: 8 bits; 2: 15 bits
  int64_t n_rows = 0;
  int64_t k = 0;
  int8_t* q = nullptr;  // [n_rows, k] first plane, -127..127
  int8_t* l = nullptr;  // [n_rows, k] refinement, -64..64; null with one plane
  float* d = nullptr;   // [n_rows, k / block]
  int16_t* q_sums = nullptr;
  int16_t* l_sums = nullptr;

  int64_t block() const noexcept { return kind == Activation::a256 ? 256 : 32; }
  int64_t group() const noexcept { return kind == Activation::a256 ? 16 : 32; }
};

// Bytes that carve() needs for these rows, including alignment to 64 of every part.
size_t activations_bytes(Activation kind, int planes, int64_t n_rows, int64_t k) noexcept;
// Lays the parts of an Activations into memory of at least activations_bytes, aligned to 64.
Activations carve(Activation kind, int planes, int64_t n_rows, int64_t k, std::byte* memory) noexcept;

// Quantises one row of x (k floats) into row `row` of out. Scalar reference. amax < 2^-100: d = 0, q = 0. A NaN or
// infinity in a block: d = NaN, q = 0, so that poison stays visible.
void quantise_row_ref(const float* x, const Activations& out, int64_t row) noexcept;

// dot/1 (section 2): one weight row of k elements times activation row `row`, without the bias. Scalar reference.
float dot_ref(const Format& format, const std::byte* weight_row, const Activations& x, int64_t row) noexcept;
// The same for float weights or, in mode f32, for any format decoded to f32: Lanes32 in each of the 8 chunks of
// elements floor(i * n / 8) with n = ceil(k / 32) blocks of 32, then the tree.
float dot_f32_ref(const Format& format, const std::byte* weight_row, const float* x, int64_t k) noexcept;

// Chunk i of 8 over n blocks begins at this block (i = 8: the end).
constexpr int64_t chunk_begin(int64_t i, int64_t n_blocks) noexcept { return i * n_blocks / 8; }

}  // namespace assay::quant
