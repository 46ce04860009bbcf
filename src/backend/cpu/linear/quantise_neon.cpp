// Activations to integers by NEON: the bits of quant::quantise_row_ref.
#include <arm_neon.h>

#include "backend/cpu/linear/quantise_loops.h"

namespace assay::backend::cpu {
namespace {

uint32_t magnitude_bits(const float* x, int64_t n) noexcept {
  uint32x4_t most = vdupq_n_u32(0);
  for (int64_t j = 0; j < n; j += 4)
    most = vmaxq_u32(most, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + j)), vdupq_n_u32(0x7FFFFFFF)));
  return vmaxvq_u32(most);
}

// To the nearest integer, ties to even, within +-bound. The floats are small: the conversion itself never saturates.
inline int32x4_t rounded(float32x4_t x, int bound) noexcept {
  return vmaxq_s32(vminq_s32(vcvtnq_s32_f32(x), vdupq_n_s32(bound)), vdupq_n_s32(-bound));
}

inline int8x16_t to_bytes(const int32x4_t* x) noexcept {
  return vcombine_s8(vmovn_s16(vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1]))),
                     vmovn_s16(vcombine_s16(vmovn_s32(x[2]), vmovn_s32(x[3]))));
}

inline void put(const int8x16_t* bytes, bool by_16, int8_t* out, int16_t* sums) noexcept {
  vst1q_s8(out, bytes[0]);
  vst1q_s8(out + 16, bytes[1]);
  put_sums({vaddlvq_s8(bytes[0]), vaddlvq_s8(bytes[1])}, by_16, sums);
}

void quantise_32(const float* x, float r, bool by_16, const Place& out) noexcept {
  int8x16_t q[2], l[2];
  for (int half = 0; half < 2; ++half) {
    int32x4_t first[4], refined[4];
    for (int i = 0; i < 4; ++i) {
      const float32x4_t v = vld1q_f32(x + 16 * half + 4 * i);
      first[i] = rounded(vmulq_n_f32(v, r), 127);
      refined[i] = rounded(vmulq_n_f32(vfmaq_n_f32(vnegq_f32(vcvtq_f32_s32(first[i])), v, r), 128), 64);
    }
    q[half] = to_bytes(first);
    l[half] = to_bytes(refined);
  }
  put(q, by_16, out.q, out.q_sums);
  if (out.l != nullptr) put(l, by_16, out.l, out.l_sums);
}

}  // namespace

void quantise_rows_neon(tensor::ConstMat x, const quant::Activations& out, int64_t row_begin,
                        int64_t row_end) noexcept {
  quantise_rows_with<magnitude_bits, quantise_32>(x, out, row_begin, row_end);
}

}  // namespace assay::backend::cpu
