// Matrix-vector products of the formats with blocks of 32, shared by the instruction sets: the floats of contract dot/1 over 8 lanes. Included
// by kernel files only; everything here is local to the file that includes it. What differs comes in as the class Unpack:
//   kBlockBytes, kHasMin     of the format
//   kOffset                  integers are stored as weight + kOffset
//   Scales scales(p)         of the 8 blocks p
//   dots<n>(p, q, out)       the exact sums of 8 blocks against n columns, in the order of lanes
#pragma once

#include "backend/cpu/gemv_rows.h"

namespace assay::backend::cpu {
namespace {

template <class Unpack>
struct FormatA32 : Unpack {
  static int64_t block_bytes(const LinearTask&) noexcept { return Unpack::kBlockBytes; }
  template <int kPlanes, int kTokens>
  [[gnu::always_inline]] static void step(const LinearTask&, const GemvOperand& x, int64_t, const StepBlocks& blocks, Floats8* c) noexcept {
    constexpr int kColumns = kPlanes * kTokens;
    prefetch_part<1, 8 * Unpack::kBlockBytes>(blocks, 0);
    Ints8 dots[kColumns];
    Unpack::template dots<kColumns>(blocks.p, x.q + blocks.step * kColumns * 256, dots);
    const Scales scales = Unpack::scales(blocks.p);
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = (blocks.step * kTokens + t) * kLanes;
      if constexpr (Unpack::kOffset != 0) {
        for (int plane = 0; plane < kPlanes; ++plane) {
          subtract_products(dots[t * kPlanes + plane], x.sums + at * kPlanes + plane * kLanes, Unpack::kOffset);
        }
      }
      const Floats8 f = join_planes<kPlanes>(dots + t * kPlanes);
      Floats8 term;
      if constexpr (Unpack::kHasMin) {
        term = fma_8(scales.d, f, mul_8(scales.m, load_8(x.g + at)));
      } else {
        term = mul_8(scales.d, f);
      }
      c[t] = fma_8(load_8(x.d + at), term, c[t]);
    }
  }
};

}  // namespace
}  // namespace assay::backend::cpu
