// What the format headers share. A format header names its block (a struct laid out as in the file) and two functions:
// unpack(), to the integers of the weights and their sub-scales, and scales(), the floats of the block. Decoding and
// the exact sums follow from those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "num/device.h"
#include "num/f16.h"
#include "quant/format.h"

namespace assay::quant {

// A block of 32 weights: value j is d * w[j], or d * w[j] + m.
struct Integers32 {
  int8_t w[32];
};

template <class Block>
ASSAY_FN Block load_block(const std::byte* bytes) noexcept {
  Block block;
  std::memcpy(&block, bytes, sizeof(Block));
  return block;
}

template <class Block>
ASSAY_FN void decode_32(const std::byte* bytes, float* out) noexcept {
  const Block block = load_block<Block>(bytes);
  const BlockScales s = scales(block);
  Integers32 n;
  unpack(block, n);
  for (int j = 0; j < 32; ++j) {
    const float product = s.d * static_cast<float>(n.w[j]);
    out[j] = Block::kHasMin ? product + s.m : product;
  }
}

template <class Block>
ASSAY_FN IntegerSums sums_32(const std::byte* bytes, const int8_t* q) noexcept {
  // I of two planes is at most this; m is at most 32 * 127.
  static_assert(int64_t{32} * 127 * Block::kMaxWeight < (int64_t{1} << 31));
  Integers32 n;
  unpack(load_block<Block>(bytes), n);
  IntegerSums sums;
  for (int j = 0; j < 32; ++j) sums.i += n.w[j] * q[j];
  if (Block::kHasMin) {
    for (int j = 0; j < 32; ++j) sums.m += q[j];
  }
  return sums;
}

template <class Block>
ASSAY_FN void decode_256(const std::byte* bytes, float* out) noexcept {
  const Block block = load_block<Block>(bytes);
  const BlockScales s = scales(block);
  Integers256 n;
  unpack(block, n);
  for (int j = 0; j < 256; ++j) {
    const float product = (s.d * static_cast<float>(n.scale[j / 16])) * static_cast<float>(n.w[j]);
    out[j] = Block::kHasMin ? product + s.m * static_cast<float>(n.min[j / 16]) : product;
  }
}

template <class Block>
ASSAY_FN IntegerSums sums_256(const std::byte* bytes, const int8_t* q) noexcept {
  static_assert(int64_t{256} * 127 * Block::kMaxWeight * Block::kMaxScale < (int64_t{1} << 31));
  static_assert(int64_t{256} * 127 * Block::kMaxMin < (int64_t{1} << 31));
  Integers256 n;
  unpack(load_block<Block>(bytes), n);
  IntegerSums sums;
  for (int group = 0; group < 16; ++group) {
    int32_t dot = 0, sum = 0;
    for (int j = 16 * group; j < 16 * group + 16; ++j) {
      dot += n.w[j] * q[j];
      sum += q[j];
    }
    sums.i += n.scale[group] * dot;
    if (Block::kHasMin) sums.m += n.min[group] * sum;
  }
  return sums;
}

template <class Block>
ASSAY_FN BlockScales scales_of(const std::byte* bytes) noexcept {
  return scales(load_block<Block>(bytes));
}

template <class Block>
ASSAY_FN void integers_of(const std::byte* bytes, Integers256& out) noexcept {
  unpack(load_block<Block>(bytes), out);
}

// The Format of a block type; list.cpp is the only caller.
template <class Block>
constexpr Format make_format_32(tensor::DType dtype) noexcept {
  return {dtype, Activation::a32, Block::kHasMin, &decode_32<Block>, &sums_32<Block>, &scales_of<Block>, nullptr};
}
template <class Block>
constexpr Format make_format_256(tensor::DType dtype) noexcept {
  return {dtype,
          Activation::a256,
          Block::kHasMin,
          &decode_256<Block>,
          &sums_256<Block>,
          &scales_of<Block>,
          &integers_of<Block>};
}

}  // namespace assay::quant
