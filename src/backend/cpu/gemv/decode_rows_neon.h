// Rows of any format decoded to f32 by NEON, with the roundings of quant::Format::decode. Included by kernel files
// only; everything here is local to the file that includes it.
#pragma once

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemv/unpack_neon.h"

namespace assay::backend::cpu {
namespace {

// Half precision and bfloat16: the processor's own conversion is exact.
inline Floats8 widen_half(const std::byte* p) noexcept {
  const float16x8_t halves = vreinterpretq_f16_u8(load_bytes(p));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
inline Floats8 widen_bf16(const std::byte* p) noexcept {
  const uint16x8_t words = vreinterpretq_u16_u8(load_bytes(p)), zero = vdupq_n_u16(0);
  return {vreinterpretq_f32_u16(vzip1q_u16(zero, words)), vreinterpretq_f32_u16(vzip2q_u16(zero, words))};
}

template <Floats8 (*widen)(const std::byte*)>
void decode_16_bits(const LinearTask& task, const std::byte* row, float* out) {
  int64_t j = 0;
  for (; j + 8 <= task.k; j += 8) store_8(out + j, widen(row + 2 * j));
  for (; j < task.k; ++j) task.format->decode(row + 2 * j, out + j);
}

// 16 weights: scale * w, or that plus a minimum.
template <bool kHasMin>
inline void store_16(int8x16_t weights, float scale, float minimum, float* out) noexcept {
  const int16x8_t words[] = {vmovl_s8(vget_low_s8(weights)), vmovl_high_s8(weights)};
  for (int i = 0; i < 2; ++i) {
    Floats8 y = mul_8(splat_8(scale), to_floats({vmovl_s16(vget_low_s16(words[i])), vmovl_high_s16(words[i])}));
    if constexpr (kHasMin) y = add_8(y, splat_8(minimum));
    store_8(out + 8 * i, y);
  }
}

// d and m of one block.
struct ScalesOfOne {
  float d, m;
};
template <class Unpack>
inline ScalesOfOne scales_of(const LinearTask& task, const std::byte* p) noexcept {
  const std::byte* same[kLanes] = {p, p, p, p, p, p, p, p};
  const Scales s = Unpack::scales(task, same);
  return {vgetq_lane_f32(s.d.low, 0), vgetq_lane_f32(s.m.low, 0)};
}

template <class Unpack>
void decode_a32(const LinearTask& task, const std::byte* row, float* out) {
  for (int64_t j = 0; j < task.k; j += 32, row += Unpack::block_bytes(task)) {
    const ScalesOfOne s = scales_of<Unpack>(task, row);
    int8x16_t w[2];
    Unpack::weights(row, w);
    for (int i = 0; i < 2; ++i) store_16<Unpack::kHasMin>(w[i], s.d, s.m, out + j + 16 * i);
  }
}

template <class Unpack>
void decode_a256(const LinearTask& task, const std::byte* row, float* out) {
  for (int64_t j = 0; j < task.k; j += 256, row += Unpack::block_bytes(task)) {
    const ScalesOfOne s = scales_of<Unpack>(task, row);
    const auto block = Unpack::open(task, row);
    const SubScales sub = Unpack::sub_scales(block);
    for (int half = 0; half < 2; ++half) {
      int8x16_t w[8];
      Unpack::unpack(block, half, w);
      int16_t scale[8], min[8] = {};
      vst1q_s16(scale, sub.scale[half]);
      if constexpr (Unpack::kHasMin) vst1q_s16(min, sub.min[half]);
      for (int i = 0; i < 8; ++i)
        store_16<Unpack::kHasMin>(w[i], s.d * scale[i], s.m * min[i], out + j + 128 * half + 16 * i);
    }
  }
}

struct DecodeA32 {
  template <class Unpack>
  DecodeRow of() const noexcept {
    return &decode_a32<Unpack>;
  }
};
struct DecodeA256 {
  template <class Unpack>
  DecodeRow of() const noexcept {
    return &decode_a256<Unpack>;
  }
};

// Null where the file's rows are floats already.
inline DecodeRow find_decode(const quant::Format& format) noexcept {
  switch (format.dtype) {
    case tensor::DType::F32: return nullptr;
    case tensor::DType::F16: return &decode_16_bits<&widen_half>;
    case tensor::DType::BF16: return &decode_16_bits<&widen_bf16>;
    default: break;
  }
  return format.activation == quant::Activation::a32 ? with_unpack_a32(format.dtype, DecodeA32{})
                                                     : with_unpack_a256(format.dtype, DecodeA256{});
}

}  // namespace
}  // namespace assay::backend::cpu
