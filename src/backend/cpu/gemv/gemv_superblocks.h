// Matrix-vector products of the formats with superblocks of 256 over superblock_lanes.h: blocks lie side by side, so
// that 8 of them are added up by 3 additions across registers. Bytes are multiplied in pairs, the pairs with their
// sub-block's scale. Included by kernel files only; everything here is local to the file that includes it.
#pragma once

#include "backend/cpu/gemv/gemv.h"
#include "backend/cpu/gemv/gemv_rows.h"
#include "backend/cpu/gemv/superblock_lanes.h"

namespace assay::backend::cpu {
namespace {

template <class Unpack>
struct Superblocks : Unpack {
  static constexpr int kStepsTogether = 1;
  using Group = typename Unpack::Group;
  static_assert(2 * Unpack::kWeightMax * 127 <= 32767);
  static constexpr bool kHasOffset = Unpack::kOffsetShift > 0;
  static constexpr int64_t kGroupElements = kStepElements / kGroups, kGroupSums = kStepSums / kGroups;
  // Whether a group's activations are within reach of one register; else each quarter has its own.
  template <int kColumns>
  static constexpr bool kGroupIsNear = kGroupElements* kColumns <= kReach;
  // Whether the products of both pieces of a sub-block fit a word.
  static constexpr bool kTwoPieces = Unpack::kSubBlock == 32 && 4 * Unpack::kWeightMax * 127 <= 32767;

  // The compiler is told that an address is one register: sums of two cost a slot with every product.
  static const int8_t* one_register(const int8_t* p) noexcept {
    asm("" : "+r"(p));
    return p;
  }

  static Wide pairs(Wide w, const int8_t* x) noexcept {
    if constexpr (Unpack::kSigned) return multiply_bytes(magnitude(w), with_sign_of(load_wide(x), w));
    return multiply_bytes(w, load_wide(x));
  }

  // The 4 pieces that are unpacked together, against all columns. x: of the group, [16 pieces][columns].
  template <int kColumns>
  [[gnu::always_inline]] static void add_quarter(const Group& group, int quarter, const int8_t* x, Wide* dot) noexcept {
    Wide w[4];
    Unpack::weights(group, quarter, w);
    constexpr int kWidth = sizeof(Wide);
    if constexpr (!kGroupIsNear<kColumns>) {
      const int64_t middle = kWidth * kColumns * 4 * quarter + kReach / 2;
      x = one_register(x + middle) - middle;
    }
    const auto at = [&](int piece, int column) { return x + kWidth * (kColumns * piece + column); };
    if constexpr (kTwoPieces) {
      for (int i = 0; i < 4; i += 2) {
        const int piece = Unpack::piece(quarter, i);
        const Wide scale = Unpack::scale(group, piece / 2);
        for (int column = 0; column < kColumns; ++column) {
          dot[column] = add_products(
              dot[column], add_words(pairs(w[i], at(piece, column)), pairs(w[i + 1], at(piece + 1, column))), scale);
        }
      }
    } else {
      for (int i = 0; i < 4; ++i) {
        const int piece = Unpack::piece(quarter, i);
        const Wide scale = Unpack::scale(group, Unpack::kSubBlock == 32 ? piece / 2 : piece);
        for (int column = 0; column < kColumns; ++column) {
          dot[column] = add_products(dot[column], pairs(w[i], at(piece, column)), scale);
        }
      }
    }
  }

  template <int kPlanes, int kTokens>
  [[gnu::always_inline]] static void terms(const LinearTask& task, const GemvOperand& x, int64_t,
                                           const StepBlocks& blocks, Floats8* out) noexcept {
    if constexpr (kStepsApart) {
      terms_apart<kPlanes, kTokens>(task, x, blocks, out);
    } else {
      terms_here<kPlanes, kTokens>(task, x, blocks, out);
    }
  }
  template <int kPlanes, int kTokens>
  [[gnu::noinline]] static void terms_apart(const LinearTask& task, const GemvOperand& x, const StepBlocks& blocks,
                                            Floats8* out) noexcept {
    terms_here<kPlanes, kTokens>(task, x, blocks, out);
  }
  template <int kPlanes, int kTokens>
  [[gnu::always_inline]] static void terms_here(const LinearTask& task, const GemvOperand& x, const StepBlocks& blocks,
                                                Floats8* out) noexcept {
    constexpr int kColumns = kPlanes * kTokens;
    Wide dots[kColumns][kGroups], minima[kColumns][kGroups], heads[kGroups];
    const int8_t* q = x.q + blocks.step * kColumns * kStepElements;
    const std::byte* words = x.words + blocks.step * kColumns * kStepSums;
    for (int g = 0; g < kGroups; ++g, q += kGroupElements * kColumns, words += kGroupSums * kColumns) {
      prefetch_part<kGroups, 8 * Unpack::kBlockBytes>(blocks, g);
      Group group;
      Unpack::open(task, blocks.p + kLanes / 2 / kGroups * g, group);
      if constexpr (Unpack::kKeepsHeads) heads[g] = group.head;
      const int8_t* of_group = kGroupIsNear<kColumns> ? one_register(q) : q;
      Wide dot[kColumns];
      for (int column = 0; column < kColumns; ++column) dot[column] = zero_wide();
      add_quarter<kColumns>(group, 0, of_group, dot);
      add_quarter<kColumns>(group, 1, of_group, dot);
      add_quarter<kColumns>(group, 2, of_group, dot);
      add_quarter<kColumns>(group, 3, of_group, dot);
      for (int column = 0; column < kColumns; ++column) {
        const std::byte* sums = words + kGroupSums * column;
        if constexpr (Unpack::kHasMin) minima[column][g] = Unpack::minimum(group, sums);
        if constexpr (kHasOffset)
          dot[column] =
              subtract_dwords(dot[column], shift_left_dwords(Unpack::minimum(group, sums), Unpack::kOffsetShift));
        dots[column][g] = dot[column];
      }
    }
    Scales scales;
    if constexpr (Unpack::kKeepsHeads) {
      scales = Unpack::scales_of_heads(heads);
    } else {
      scales = Unpack::scales(task, blocks.p);
    }
    for (int t = 0; t < kTokens; ++t) {
      Ints8 dot[kPlanes], minimum[kPlanes];
      for (int plane = 0; plane < kPlanes; ++plane) {
        dot[plane] = sums_of_blocks(dots[t * kPlanes + plane]);
        if constexpr (Unpack::kHasMin) minimum[plane] = sums_of_blocks(minima[t * kPlanes + plane]);
      }
      out[t] = superblock_term<Unpack::kHasMin, kPlanes>(scales, dot, minimum);
    }
  }
};

// Null where the format is none of superblocks.
inline GemvKernel superblock_kernel(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::Q2_K: return &gemv_any<Superblocks<LanesQ2_K>>;
    case DType::Q3_K: return &gemv_any<Superblocks<LanesQ3_K>>;
    case DType::Q4_K: return &gemv_any<Superblocks<LanesQ4_K>>;
    case DType::Q5_K: return &gemv_any<Superblocks<LanesQ5_K>>;
    case DType::Q6_K: return &gemv_any<Superblocks<LanesQ6_K>>;
    case DType::IQ4_XS: return &gemv_any<Superblocks<LanesIQ4_XS>>;
    case DType::IQ2_XXS: return &gemv_any<Superblocks<LanesOfGrid<quant::BlockIQ2_XXS, 8>>>;
    case DType::IQ2_XS: return &gemv_any<Superblocks<LanesOfGrid<quant::BlockIQ2_XS, 8>>>;
    case DType::IQ2_S: return &gemv_any<Superblocks<LanesOfGrid<quant::BlockIQ2_S, 8>>>;
    case DType::IQ3_XXS: return &gemv_any<Superblocks<LanesOfGrid<quant::BlockIQ3_XXS, 4>>>;
    case DType::IQ3_S: return &gemv_any<Superblocks<LanesOfGrid<quant::BlockIQ3_S, 1>>>;
    case DType::TQ1_0: return &gemv_any<Superblocks<LanesTQ1_0>>;
    case DType::TQ2_0: return &gemv_any<Superblocks<LanesTQ2_0>>;
    case DType::IQ1_S: return &gemv_any<Superblocks<LanesAny>>;
    default: return nullptr;
  }
}

}  // namespace
}  // namespace assay::backend::cpu
