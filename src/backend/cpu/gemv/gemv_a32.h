// Matrix-vector products of the formats with blocks of 32, shared by the instruction sets: the floats of contract dot/1
// over 8 lanes. Included by kernel files only; everything here is local to the file that includes it. What differs
// comes in as the class Unpack:
//   kBlockBytes, kHasMin     of the format
//   kOffset                  integers are stored as weight + kOffset
//   Scales scales(p)         of the 8 blocks p
//   dots<planes, n>(p, q, out)  the sums of 8 blocks against n tokens, in the order of lanes; of two planes 128 times
//     the first's and the second's
//   joined_dots<n>(p, x, out)   if it has it: the same of two planes, from both as one number
// Both planes in one integer: a block's sum of a plane is below 2^20, so F = fma(1/128, float(l), float(q)) of the
// contract is the rounding of an exact (128 q + l) / 128, and so is float(128 q + l) / 128.
#pragma once

#include "backend/cpu/gemv/gemv_rows.h"

namespace assay::backend::cpu {
namespace {

template <class Unpack>
struct FormatA32 : Unpack {
  static constexpr int kStepsTogether = 2;
  static int64_t block_bytes(const LinearTask&) noexcept { return Unpack::kBlockBytes; }
  template <int kPlanes, int kTokens>
  [[gnu::always_inline]] static void terms(const LinearTask&, const GemvOperand& x, int64_t, const StepBlocks& blocks,
                                           Floats8* out) noexcept {
    prefetch_part<1, 8 * Unpack::kBlockBytes>(blocks, 0);
    Ints8 dots[kTokens];
    if constexpr (kPlanes == 2 && requires { &Unpack::template joined_dots<kTokens>; }) {
      Unpack::template joined_dots<kTokens>(blocks.p, x.joined + blocks.step * kTokens * 32 * kLanes, dots);
    } else {
      Unpack::template dots<kPlanes, kTokens>(blocks.p, x.q + blocks.step * kPlanes * kTokens * 256, dots);
    }
    const Scales scales = Unpack::scales(blocks.p);
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = (blocks.step * kTokens + t) * kLanes;
      if constexpr (Unpack::kOffset != 0) subtract_products<Unpack::kOffset>(dots[t], x.sums + at);
      Floats8 f = to_floats(dots[t]);
      if constexpr (kPlanes == 2) f = mul_8(splat_8(0x1p-7f), f);
      if constexpr (Unpack::kHasMin) {
        out[t] = fma_8(scales.d, f, mul_8(scales.m, load_8(x.g + at)));
      } else {
        out[t] = mul_8(scales.d, f);
      }
    }
  }
};

}  // namespace
}  // namespace assay::backend::cpu
