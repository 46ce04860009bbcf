// Matrix-vector products by NEON with the dot product instruction: sdot adds 4 products of signed bytes to each 32-bit
// lane and cannot overflow or saturate, so weights of every format are signed bytes.
#include "backend/cpu/gemv/gemv.h"
#include "backend/cpu/gemv/gemv_a256.h"
#include "backend/cpu/gemv/gemv_a32.h"
#include "backend/cpu/gemv/unpack_neon.h"

namespace assay::backend::cpu {
namespace {

// Sums over the 4 lanes of 8 registers, in order.
inline Ints8 add_across(const int32x4_t* v) noexcept {
  const auto four = [v](int i) { return vpaddq_s32(vpaddq_s32(v[i], v[i + 1]), vpaddq_s32(v[i + 2], v[i + 3])); };
  return {four(0), four(4)};
}

// sum + 32 products.
inline int32x4_t add_dot_32(int32x4_t sum, const int8x16_t* w, int8x16_t first, int8x16_t second) noexcept {
  return vdotq_s32(vdotq_s32(sum, w[0], first), w[1], second);
}

template <class Unpack>
struct DotsA32 : Unpack {
  static constexpr int kOffset = 0;
  static Scales scales(const std::byte* const* p) noexcept { return Unpack::scales({}, p); }

  template <int kPlanes, int kTokens>
  [[gnu::always_inline]] static void dots(const std::byte* const* p, const int8_t* q, Ints8* out) noexcept {
    int32x4_t sums[kTokens][kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      int8x16_t w[2];
      Unpack::weights(p[lane], w);
      const int8_t* x =
          q + 128 * (lane % 4 / 2) + 32 * (lane % 2) + 16 * (lane / 4);  // as gemv_prepare.h lays them out
      for (int t = 0; t < kTokens; ++t, x += 256 * kPlanes) {
        int32x4_t sum = add_dot_32(vdupq_n_s32(0), w, vld1q_s8(x), vld1q_s8(x + 64));
        if constexpr (kPlanes == 2) sum = add_dot_32(vshlq_n_s32(sum, 7), w, vld1q_s8(x + 256), vld1q_s8(x + 320));
        sums[t][lane] = sum;
      }
    }
    for (int t = 0; t < kTokens; ++t) out[t] = add_across(sums[t]);
  }
};

struct PartialSums {
  int32x4_t dot;
  int32x4_t minimum;  // only where the format has one
};

// 16 products of words.
inline int32x4_t dot_words(const int16x8_t* a, const int16_t* b) noexcept {
  const int16x8_t first = vld1q_s16(b), second = vld1q_s16(b + 8);
  const int32x4_t low =
      vmlal_s16(vmull_s16(vget_low_s16(a[0]), vget_low_s16(first)), vget_low_s16(a[1]), vget_low_s16(second));
  return vmlal_high_s16(vmlal_high_s16(low, a[0], first), a[1], second);
}

template <class Unpack>
struct DotsA256 : Unpack {
  using Partial = PartialSums;

  template <int kColumns>
  static void dots(const LinearTask& task, const std::byte* p, const int8_t* const* q, const int16_t* const* sums,
                   PartialSums* out) noexcept {
    const typename Unpack::Block block = Unpack::open(task, p);
    const SubScales s = Unpack::sub_scales(block);
    int16_t scale[16];
    vst1q_s16(scale, s.scale[0]);
    vst1q_s16(scale + 8, s.scale[1]);
    for (int column = 0; column < kColumns; ++column) out[column].dot = vdupq_n_s32(0);
    for (int half = 0; half < 2; ++half) {
      int8x16_t w[8];
      Unpack::unpack(block, half, w);
      for (int i = 0; i < 8; i += 2) {
        const int16_t* here = scale + 8 * half + i;
        for (int column = 0; column < kColumns; ++column) {
          const int8_t* x = q[column] + 128 * half + 16 * i;
          const int8x16_t first = vld1q_s8(x), second = vld1q_s8(x + 16);
          int32x4_t& dot = out[column].dot;
          if constexpr (Unpack::kSubBlock == 32) {
            dot = vmlaq_n_s32(dot, add_dot_32(vdupq_n_s32(0), w + i, first, second), here[0]);
          } else {
            dot = vmlaq_n_s32(dot, vdotq_s32(vdupq_n_s32(0), w[i], first), here[0]);
            dot = vmlaq_n_s32(dot, vdotq_s32(vdupq_n_s32(0), w[i + 1], second), here[1]);
          }
        }
      }
    }
    if constexpr (Unpack::kHasMin) {
      for (int column = 0; column < kColumns; ++column) out[column].minimum = dot_words(s.min, sums[column]);
    }
  }

  static void reduce(const PartialSums* partial, Ints8& dot, Ints8& minimum) noexcept {
    int32x4_t parts[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) parts[lane] = partial[lane].dot;
    dot = add_across(parts);
    if constexpr (Unpack::kHasMin) {
      for (int lane = 0; lane < kLanes; ++lane) parts[lane] = partial[lane].minimum;
      minimum = add_across(parts);
    }
  }
};

struct KernelA32 {
  template <class Unpack>
  GemvKernel of() const noexcept {
    return &gemv_any<FormatA32<DotsA32<Unpack>>>;
  }
};
struct KernelA256 {
  template <class Unpack>
  GemvKernel of() const noexcept {
    return &gemv_any<FormatA256<DotsA256<Unpack>>>;
  }
};

}  // namespace

GemvKernel gemv_neon(const LinearTask& task) noexcept {
  const tensor::DType dtype = task.format->dtype;
  return task.format->activation == quant::Activation::a32 ? with_unpack_a32(dtype, KernelA32{})
                                                           : with_unpack_a256(dtype, KernelA256{});
}

}  // namespace assay::backend::cpu
