// What every weight format offers: how a block decodes, and the exact integers and scales of its dot with 8-bit
// activations. One header per format fills one Format; list.cpp names them all. Nobody else switches on a format: they
// ask the Format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace assay::quant {

// Which activations a weight format is dotted with (numerics contract, section 1).
enum class Activation {
  f32,   // float weights: Lanes32 over f32 (section 3)
  a32,   // one scale per 32 elements
  a256,  // one scale per 256 elements
};

// The exact integers of one block against one activation plane (section 2.1): i over the weights' integers with their
// integer sub-scales folded in, m over the minima (0 where the format has none).
struct IntegerSums {
  int32_t i = 0;
  int32_t m = 0;
};

// Section 2.2: t = has_min ? fma(d, F, m * G) : d * F. For the K-quants with minima m is -dmin, which changes no bit.
struct BlockScales {
  float d = 0;
  float m = 0;
};

// A superblock of 256 weights: value j is (d * scale[j / 16]) * w[j], or that plus m * min[j / 16]. Formats whose
// sub-blocks are longer repeat their scale.
struct Integers256 {
  int8_t w[256];
  int16_t scale[16];
  int16_t min[16];
};

struct Format {
  tensor::DType dtype;
  Activation activation;
  bool has_min;
  // One block of traits(dtype).block_elements to f32, every operation rounded once, no fma.
  void (*decode)(const std::byte* block, float* out) noexcept;
  // Null where activation == f32. q: block_elements integers in -127..127 (or a second plane in -64..64).
  IntegerSums (*sums)(const std::byte* block, const int8_t* q) noexcept;
  BlockScales (*scales)(const std::byte* block) noexcept;
  // The integers themselves; null except where activation == a256.
  void (*integers)(const std::byte* block, Integers256& out) noexcept;
};

// The format of a type; nullptr for integer and f64 tensors, which are no weights.
const Format* find_format(tensor::DType dtype) noexcept;
std::span<const Format> all_formats() noexcept;

// n elements (a multiple of the block) of a row to f32.
void decode_row(const Format& format, const std::byte* row, int64_t n_elements, float* out) noexcept;

}  // namespace assay::quant
