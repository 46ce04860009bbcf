// Pseudo-random rows of weights and activations for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "num/f16.h"
#include "quant/format.h"
#include "support/random_numbers.h"

namespace assay::test {

// Where a block keeps its half-precision scales; -1: none. MXFP4 has an exponent byte at 0 instead.
struct ScaleOffsets {
  int d = -1, m = -1;
};
inline ScaleOffsets scale_offsets(tensor::DType dtype) {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K: return {0, 2};
    case DType::Q2_K: return {80, 82};
    case DType::Q3_K: return {108, -1};
    case DType::Q6_K: return {208, -1};
    case DType::TQ1_0: return {52, -1};
    case DType::TQ2_0: return {64, -1};
    case DType::MXFP4:
    case DType::F32:
    case DType::F16:
    case DType::BF16: return {};
    default: return {0, -1};
  }
}

// A half in +-[2^-12, 2^-4): a scale as real files have them.
inline uint16_t random_scale(Random& random) {
  return static_cast<uint16_t>(((random.next() & 1) << 15) | static_cast<uint64_t>((3 + random.below(8)) << 10) |
                               (random.next() & 1023));
}

// k weights (a multiple of the block) in any served format; every bit pattern of the integers occurs, the scales are
// finite.
inline std::vector<std::byte> random_weights(const quant::Format& format, int64_t k, uint64_t seed) {
  using tensor::DType;
  Random random(seed);
  const tensor::DTypeTraits& t = tensor::traits(format.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(k / t.block_elements * t.block_bytes));
  const ScaleOffsets offsets = scale_offsets(format.dtype);
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(t.block_bytes)) {
    std::byte* block = bytes.data() + at;
    if (format.activation == quant::Activation::f32) {
      const float x = random.normal();
      const uint16_t half = format.dtype == DType::F16 ? num::float_to_half(x) : num::float_to_bf16(x);
      std::memcpy(block, format.dtype == DType::F32 ? static_cast<const void*>(&x) : &half,
                  static_cast<size_t>(t.block_bytes));
      continue;
    }
    for (int64_t i = 0; i < t.block_bytes; ++i) block[i] = static_cast<std::byte>(random.next() >> 56);
    for (const int offset : {offsets.d, offsets.m}) {
      if (offset < 0) continue;
      const uint16_t scale = random_scale(random);
      std::memcpy(block + offset, &scale, 2);
    }
    if (format.dtype == DType::MXFP4) block[0] = static_cast<std::byte>(118 + random.below(9));
  }
  return bytes;
}

// Activations as a network has them: most near 1, now and then an outlier.
inline std::vector<float> random_activations(int64_t k, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(static_cast<size_t>(k));
  for (float& value : x) {
    value = random.normal();
    if (random.below(50) == 0) value *= 16;
  }
  return x;
}

}  // namespace assay::test
