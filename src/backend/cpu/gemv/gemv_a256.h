// Matrix-vector products of the formats with superblocks of 256, shared by the instruction sets: the floats of contract
// dot/1 over 8 lanes. Included by kernel files only; everything here is local to the file that includes it. What
// differs comes in as the class Unpack:
//   kHasMin, block_bytes()   of the format
//   scales(p)                d and m of the 8 superblocks p
//   Partial                  a superblock's integer sums, not yet added up across the register
//   dots<n>(..)              partial sums of one superblock against n columns
//   reduce(partials, ..)     adds up the partial sums of 8 superblocks, in the order of lanes
#pragma once

#include "backend/cpu/gemv/gemv_rows.h"

namespace assay::backend::cpu {
namespace {

template <class Unpack>
struct FormatA256 : Unpack {
  static constexpr int kStepsTogether = 1;
  template <int kPlanes, int kTokens>
  [[gnu::always_inline]] static void terms(const LinearTask& task, const GemvOperand&, int64_t token,
                                           const StepBlocks& blocks, Floats8* out) noexcept {
    constexpr int kColumns = kPlanes * kTokens;
    prefetch_part<1, 8 * Unpack::kBlockBytes>(blocks, 0);
    typename Unpack::Partial partial[kColumns][kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const int8_t* q[kColumns];
      const int16_t* sums[kColumns];
      for (int t = 0; t < kTokens; ++t) {
        const int64_t at = (token + t) * task.k + 256 * (blocks.first[lane] + blocks.add);
        q[t * kPlanes] = task.x.q + at;
        sums[t * kPlanes] = task.x.q_sums + at / 16;
        if constexpr (kPlanes == 2) {
          q[t * kPlanes + 1] = task.x.l + at;
          sums[t * kPlanes + 1] = task.x.l_sums + at / 16;
        }
      }
      typename Unpack::Partial of_lane[kColumns];
      Unpack::template dots<kColumns>(task, blocks.p[lane], q, sums, of_lane);
      for (int column = 0; column < kColumns; ++column) partial[column][lane] = of_lane[column];
    }
    const Scales scales = Unpack::scales(task, blocks.p);
    for (int t = 0; t < kTokens; ++t) {
      Ints8 dot[kPlanes], minimum[kPlanes];
      for (int plane = 0; plane < kPlanes; ++plane)
        Unpack::reduce(partial[t * kPlanes + plane], dot[plane], minimum[plane]);
      out[t] = superblock_term<Unpack::kHasMin, kPlanes>(scales, dot, minimum);
    }
  }
};

}  // namespace
}  // namespace assay::backend::cpu
