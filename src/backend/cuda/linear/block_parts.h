// Bytes of the parts into which blocks are cut on the device (linear/matrix.h), from the formats' one description in
// src/quant. Known to host and kernels.
#pragma once

#include <cstddef>

#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace assay::backend::cuda {

// Q4_K, Q5_K: the head (factors, packed scales and minima) | the fifth bits, of Q5_K alone | the nibbles.
inline constexpr int kHeadBytes = offsetof(quant::BlockQ4_K, nibbles),
                     kFifthBytes = sizeof(quant::BlockQ5_K::high_bits),
                     kNibbleBytes = sizeof(quant::BlockQ4_K::nibbles);
inline constexpr int kQ4KBytes = sizeof(quant::BlockQ4_K), kQ5KBytes = sizeof(quant::BlockQ5_K);
static_assert(offsetof(quant::BlockQ4_K, d) == 0 && offsetof(quant::BlockQ4_K, d_min) == 2 &&
              offsetof(quant::BlockQ4_K, sub_scales) == 4 && kQ4KBytes == kHeadBytes + kNibbleBytes);
static_assert(offsetof(quant::BlockQ5_K, d) == 0 && offsetof(quant::BlockQ5_K, d_min) == 2 &&
              offsetof(quant::BlockQ5_K, sub_scales) == 4 && offsetof(quant::BlockQ5_K, high_bits) == kHeadBytes &&
              offsetof(quant::BlockQ5_K, nibbles) == kHeadBytes + kFifthBytes &&
              sizeof(quant::BlockQ5_K::nibbles) == kNibbleBytes &&
              kQ5KBytes == kHeadBytes + kFifthBytes + kNibbleBytes);

// Q6_K: the nibbles | the pairs of high bits | the scales of sub-blocks | d. In kernels the first three are a row, d
// stands apart.
inline constexpr int kQ6KNibbleBytes = sizeof(quant::BlockQ6_K::nibbles),
                     kQ6KPairBytes = sizeof(quant::BlockQ6_K::high_bits),
                     kQ6KScaleBytes = sizeof(quant::BlockQ6_K::sub_scales),
                     kQ6KFactorBytes = sizeof(quant::BlockQ6_K::d);
inline constexpr int kQ6KScalesAt = kQ6KNibbleBytes + kQ6KPairBytes, kQ6KRowBytes = kQ6KScalesAt + kQ6KScaleBytes;
static_assert(offsetof(quant::BlockQ6_K, nibbles) == 0 && offsetof(quant::BlockQ6_K, high_bits) == kQ6KNibbleBytes &&
              offsetof(quant::BlockQ6_K, sub_scales) == kQ6KScalesAt && offsetof(quant::BlockQ6_K, d) == kQ6KRowBytes &&
              sizeof(quant::BlockQ6_K) == kQ6KRowBytes + kQ6KFactorBytes);

// Blocks of 32: d, and m where there is one | the weights.
inline constexpr int kQ4_0Bytes = sizeof(quant::BlockQ4_0::nibbles), kQ4_1Bytes = sizeof(quant::BlockQ4_1::nibbles),
                     kQ8_0Bytes = sizeof(quant::BlockQ8_0::q);
inline constexpr int kQ4_0HeadBytes = offsetof(quant::BlockQ4_0, nibbles),
                     kQ4_1HeadBytes = offsetof(quant::BlockQ4_1, nibbles),
                     kQ8_0HeadBytes = offsetof(quant::BlockQ8_0, q);
static_assert(offsetof(quant::BlockQ4_0, d) == 0 && offsetof(quant::BlockQ4_1, d) == 0 &&
              offsetof(quant::BlockQ4_1, m) == 2 && offsetof(quant::BlockQ8_0, d) == 0);

}  // namespace assay::backend::cuda
