// Blocks of every format with a fast kernel unpacked to signed bytes by NEON, 16 elements a register, in order.
// Included by kernel files only; everything here is local to the file that includes it. Each class says of its format:
//   kHasMin, block_bytes(task), scales(task, p)   scales: d and m of the 8 blocks p
//   weights(p, w)                                 blocks of 32: w[2]
//   open(task, p), sub_scales(block)              superblocks of 256: the integer scales and minima of the 16 groups of 16
//   unpack(block, half, w)                        w[8], half of the superblock
//   kSubBlock                                     elements under one integer scale
#pragma once

#include <arm_neon.h>

#include <cstddef>

#include "backend/cpu/gemv/block_scales.h"
#include "backend/cpu/gemv/gemv_prepare.h"
#include "backend/cpu/gemv/packed_scales.h"
#include "quant/blocks.h"

namespace assay::backend::cpu {
namespace {

inline uint8x16_t load_bytes(const void* p) noexcept { return vld1q_u8(static_cast<const uint8_t*>(p)); }
inline int8x16_t minus(uint8x16_t w, int offset) noexcept {
  return vsubq_s8(vreinterpretq_s8_u8(w), vdupq_n_s8(static_cast<int8_t>(offset)));
}
inline uint8x16_t low_nibbles(uint8x16_t bytes) noexcept { return vandq_u8(bytes, vdupq_n_u8(15)); }
inline uint8x16_t high_nibbles(uint8x16_t bytes) noexcept { return vshrq_n_u8(bytes, 4); }

// ---- Floats d and m of 8 blocks.

inline Floats8 load_halves(const std::byte* const* p, size_t offset) noexcept {
  uint16_t bits[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) __builtin_memcpy(bits + lane, p[lane] + offset, 2);
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(bits));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}

// Packed: the format's block of quant/, which says where everything lies.
template <class Packed, bool kMin>
struct Sized {
  static constexpr bool kHasMin = kMin;
  static constexpr int kBlockBytes = sizeof(Packed);
  static int64_t block_bytes(const LinearTask&) noexcept { return kBlockBytes; }
};

template <class Packed>
struct OneScale : Sized<Packed, false> {
  static Scales scales(const LinearTask&, const std::byte* const* p) noexcept {
    return {load_halves(p, offsetof(Packed, d)), zero_8()};
  }
};

template <class Packed>
struct ScaleAndMin : Sized<Packed, true> {
  static Scales scales(const LinearTask&, const std::byte* const* p) noexcept {
    return {load_halves(p, offsetof(Packed, d)), load_halves(p, offsetof(Packed, m))};
  }
};

// The second number is what is subtracted: m = -d_min.
template <class Packed>
struct ScaleAndNegatedMin : Sized<Packed, true> {
  static Scales scales(const LinearTask&, const std::byte* const* p) noexcept {
    const Floats8 m = load_halves(p, offsetof(Packed, d_min));
    return {load_halves(p, offsetof(Packed, d)), {vnegq_f32(m.low), vnegq_f32(m.high)}};
  }
};

// 2^(e - 128) of the first byte, as MXFP4 has it; subnormal for 0 and 1.
struct PowerScale : Sized<quant::BlockMXFP4, false> {
  static Scales scales(const LinearTask&, const std::byte* const* p) noexcept {
    uint32_t bits[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto e = static_cast<uint32_t>(p[lane][0]);
      bits[lane] = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    }
    return {{vreinterpretq_f32_u32(vld1q_u32(bits)), vreinterpretq_f32_u32(vld1q_u32(bits + 4))}, zero_8()};
  }
};

// ---- Blocks of 32.

inline void unpack_nibbles_16(const std::byte* p, uint8x16_t* w) noexcept {
  const uint8x16_t bytes = load_bytes(p);
  w[0] = low_nibbles(bytes);
  w[1] = high_nibbles(bytes);
}

// Adds 16 where the mask of 32 bits at p has the element's bit.
inline void add_fifth_bits(const std::byte* p, uint8x16_t* w) noexcept {
  uint32_t mask;
  __builtin_memcpy(&mask, p, 4);
  const uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(mask)),
                   bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  for (int half = 0; half < 2; ++half) {
    const uint8x16_t of_element =
        vcombine_u8(vdup_n_u8(static_cast<uint8_t>(2 * half)), vdup_n_u8(static_cast<uint8_t>(2 * half + 1)));
    w[half] = vorrq_u8(w[half], vandq_u8(vtstq_u8(vqtbl1q_u8(bytes, of_element), bit), vdupq_n_u8(16)));
  }
}

template <class Packed, template <class> class Scale, int kOffset>
struct UnpackSmall : Scale<Packed> {
  static void weights(const std::byte* p, int8x16_t* w) noexcept {
    uint8x16_t plain[2];
    unpack_nibbles_16(p + offsetof(Packed, nibbles), plain);
    if constexpr (requires(const Packed& block) { block.high_bits; })
      add_fifth_bits(p + offsetof(Packed, high_bits), plain);
    for (int i = 0; i < 2; ++i) w[i] = minus(plain[i], kOffset);
  }
};
using UnpackQ4_0 = UnpackSmall<quant::BlockQ4_0, OneScale, 8>;
using UnpackQ4_1 = UnpackSmall<quant::BlockQ4_1, ScaleAndMin, 0>;
using UnpackQ5_0 = UnpackSmall<quant::BlockQ5_0, OneScale, 16>;
using UnpackQ5_1 = UnpackSmall<quant::BlockQ5_1, ScaleAndMin, 0>;

struct UnpackQ8_0 : OneScale<quant::BlockQ8_0> {
  static void weights(const std::byte* p, int8x16_t* w) noexcept {
    for (int i = 0; i < 2; ++i) w[i] = vreinterpretq_s8_u8(load_bytes(p + offsetof(quant::BlockQ8_0, q) + 16 * i));
  }
};

constexpr int8_t kLevelsIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kLevelsMXFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline void look_up_nibbles(const int8_t* levels, const std::byte* p, int8x16_t* w) noexcept {
  uint8x16_t at[2];
  unpack_nibbles_16(p, at);
  for (int i = 0; i < 2; ++i) w[i] = vqtbl1q_s8(vld1q_s8(levels), at[i]);
}

struct UnpackIQ4_NL : OneScale<quant::BlockIQ4_NL> {
  static void weights(const std::byte* p, int8x16_t* w) noexcept {
    look_up_nibbles(kLevelsIQ4, p + offsetof(quant::BlockIQ4_NL, nibbles), w);
  }
};

struct UnpackMXFP4 : PowerScale {
  static void weights(const std::byte* p, int8x16_t* w) noexcept {
    look_up_nibbles(kLevelsMXFP4, p + offsetof(quant::BlockMXFP4, nibbles), w);
  }
};

// ---- Superblocks of 256. Words; min only where the format has minima.
struct SubScales {
  int16x8_t scale[2], min[2];
};

// Bytes 0..7 twice each, as words.
inline void widen_pairs(uint64_t bytes, int16x8_t* words) noexcept {
  const uint8x8_t v = vcreate_u8(bytes);
  words[0] = vreinterpretq_s16_u16(vmovl_u8(vzip1_u8(v, v)));
  words[1] = vreinterpretq_s16_u16(vmovl_u8(vzip2_u8(v, v)));
}

// A superblock is read where it lies.
struct InPlace {
  using Block = const std::byte*;
  static Block open(const LinearTask&, const std::byte* p) noexcept { return p; }
};

// Bits of `high` as `value`, into the 32 elements w.
inline void add_bit(const std::byte* high, int bit, int value, uint8x16_t* w) noexcept {
  for (int i = 0; i < 2; ++i) {
    const uint8x16_t set = vtstq_u8(load_bytes(high + 16 * i), vdupq_n_u8(static_cast<uint8_t>(1 << bit)));
    w[i] = vorrq_u8(w[i], vandq_u8(set, vdupq_n_u8(static_cast<uint8_t>(value))));
  }
}

// 128 elements in 32 bytes: bits 0 and 1 of all bytes first, then bits 2 and 3.
inline void unpack_two_bits(const std::byte* p, uint8x16_t* w) noexcept {
  const uint8x16_t mask = vdupq_n_u8(3);
  for (int i = 0; i < 2; ++i) {
    const uint8x16_t bytes = load_bytes(p + 16 * i);
    w[i] = vandq_u8(bytes, mask);
    w[2 + i] = vandq_u8(vshrq_n_u8(bytes, 2), mask);
    w[4 + i] = vandq_u8(vshrq_n_u8(bytes, 4), mask);
    w[6 + i] = vshrq_n_u8(bytes, 6);
  }
}

// 128 elements in 64 bytes: in each 32 the low nibbles first.
inline void unpack_nibbles_128(const std::byte* p, uint8x16_t* w) noexcept {
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t bytes = load_bytes(p + 16 * i);
    w[4 * (i / 2) + i % 2] = low_nibbles(bytes);
    w[4 * (i / 2) + i % 2 + 2] = high_nibbles(bytes);
  }
}

struct UnpackQ2_K : ScaleAndNegatedMin<quant::BlockQ2_K>, InPlace {
  static constexpr int kSubBlock = 16;
  static SubScales sub_scales(Block p) noexcept {
    const uint8x16_t bytes = load_bytes(p + offsetof(quant::BlockQ2_K, sub_scales)), scale = low_nibbles(bytes),
                     min = high_nibbles(bytes);
    const auto words = [](uint8x8_t v) { return vreinterpretq_s16_u16(vmovl_u8(v)); };
    return {{words(vget_low_u8(scale)), words(vget_high_u8(scale))},
            {words(vget_low_u8(min)), words(vget_high_u8(min))}};
  }
  static void unpack(Block p, int half, int8x16_t* w) noexcept {
    uint8x16_t plain[8];
    unpack_two_bits(p + offsetof(quant::BlockQ2_K, q) + 32 * half, plain);
    for (int i = 0; i < 8; ++i) w[i] = vreinterpretq_s8_u8(plain[i]);
  }
};

struct UnpackQ3_K : OneScale<quant::BlockQ3_K>, InPlace {
  static constexpr int kSubBlock = 16;
  static SubScales sub_scales(Block p) noexcept {
    const Q3KScaleBytes bytes = q3_k_scale_bytes(p + offsetof(quant::BlockQ3_K, sub_scales));
    const auto words = [](uint64_t v) { return vmovl_s8(vsub_s8(vcreate_s8(v), vdup_n_s8(32))); };
    return {{words(bytes.first), words(bytes.second)}, {}};
  }
  static void unpack(Block p, int half, int8x16_t* w) noexcept {
    uint8x16_t plain[8];
    unpack_two_bits(p + offsetof(quant::BlockQ3_K, q) + 32 * half, plain);
    for (int i = 0; i < 4; ++i) add_bit(p + offsetof(quant::BlockQ3_K, high_bits), 4 * half + i, 4, plain + 2 * i);
    for (int i = 0; i < 8; ++i) w[i] = minus(plain[i], 4);
  }
};

inline SubScales k_scales(const std::byte* packed) noexcept {
  const KScaleBytes bytes = k_scale_bytes(packed);
  SubScales s;
  widen_pairs(bytes.scales, s.scale);
  widen_pairs(bytes.minima, s.min);
  return s;
}

struct UnpackQ4_K : ScaleAndNegatedMin<quant::BlockQ4_K>, InPlace {
  static constexpr int kSubBlock = 32;
  static SubScales sub_scales(Block p) noexcept { return k_scales(p + offsetof(quant::BlockQ4_K, sub_scales)); }
  static void unpack(Block p, int half, int8x16_t* w) noexcept {
    uint8x16_t plain[8];
    unpack_nibbles_128(p + offsetof(quant::BlockQ4_K, nibbles) + 64 * half, plain);
    for (int i = 0; i < 8; ++i) w[i] = vreinterpretq_s8_u8(plain[i]);
  }
};

struct UnpackQ5_K : ScaleAndNegatedMin<quant::BlockQ5_K>, InPlace {
  static constexpr int kSubBlock = 32;
  static SubScales sub_scales(Block p) noexcept { return k_scales(p + offsetof(quant::BlockQ5_K, sub_scales)); }
  static void unpack(Block p, int half, int8x16_t* w) noexcept {
    uint8x16_t plain[8];
    unpack_nibbles_128(p + offsetof(quant::BlockQ5_K, nibbles) + 64 * half, plain);
    for (int i = 0; i < 4; ++i) add_bit(p + offsetof(quant::BlockQ5_K, high_bits), 4 * half + i, 16, plain + 2 * i);
    for (int i = 0; i < 8; ++i) w[i] = vreinterpretq_s8_u8(plain[i]);
  }
};

struct UnpackQ6_K : OneScale<quant::BlockQ6_K>, InPlace {
  static constexpr int kSubBlock = 16;
  static SubScales sub_scales(Block p) noexcept {
    const int8x16_t bytes = vreinterpretq_s8_u8(load_bytes(p + offsetof(quant::BlockQ6_K, sub_scales)));
    return {{vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)}, {}};
  }
  // Low nibbles of 32 bytes and of the next 32, then their high ones; above them a pair of bits each, from the low end
  // of 32 bytes on.
  static void unpack(Block p, int half, int8x16_t* w) noexcept {
    const uint8x16_t high = vdupq_n_u8(0x30);
    for (int i = 0; i < 2; ++i) {
      const std::byte* nibbles = p + offsetof(quant::BlockQ6_K, nibbles) + 64 * half + 16 * i;
      const uint8x16_t first = load_bytes(nibbles), second = load_bytes(nibbles + 32);
      const uint8x16_t pairs = load_bytes(p + offsetof(quant::BlockQ6_K, high_bits) + 32 * half + 16 * i);
      w[i] = minus(vorrq_u8(low_nibbles(first), vandq_u8(vshlq_n_u8(pairs, 4), high)), 32);
      w[2 + i] = minus(vorrq_u8(low_nibbles(second), vandq_u8(vshlq_n_u8(pairs, 2), high)), 32);
      w[4 + i] = minus(vorrq_u8(high_nibbles(first), vandq_u8(pairs, high)), 32);
      w[6 + i] = minus(vorrq_u8(high_nibbles(second), vandq_u8(vshrq_n_u8(pairs, 2), high)), 32);
    }
  }
};

struct UnpackIQ4_XS : OneScale<quant::BlockIQ4_XS>, InPlace {
  static constexpr int kSubBlock = 32;
  // The pairs of top bits and the nibbles of 8 scales around 32.
  static SubScales sub_scales(Block p) noexcept {
    uint16_t high;
    uint32_t low;
    __builtin_memcpy(&high, p + offsetof(quant::BlockIQ4_XS, scales_high), 2);
    __builtin_memcpy(&low, p + offsetof(quant::BlockIQ4_XS, scales_low), 4);
    uint64_t bytes = 0;
    for (int i = 0; i < 8; ++i)
      bytes |= static_cast<uint64_t>(((low >> (4 * i)) & 15) | ((static_cast<uint32_t>(high) >> (2 * i)) & 3) << 4)
               << (8 * i);
    SubScales s{};
    widen_pairs(bytes, s.scale);
    for (int16x8_t& words : s.scale) words = vsubq_s16(words, vdupq_n_s16(32));
    return s;
  }
  static void unpack(Block p, int half, int8x16_t* w) noexcept {
    for (int i = 0; i < 4; ++i)
      look_up_nibbles(kLevelsIQ4, p + offsetof(quant::BlockIQ4_XS, nibbles) + 64 * half + 16 * i, w + 2 * i);
  }
};

// Codebook formats without a minimum: the plain code makes the integers.
struct UnpackAny {
  static constexpr int kBlockBytes = 66;  // of the smallest of them, for fetching ahead
  static constexpr bool kHasMin = false;
  static constexpr int kSubBlock = 16;
  static int64_t block_bytes(const LinearTask& task) noexcept { return task.row_bytes / (task.k / 256); }
  static Scales scales(const LinearTask& task, const std::byte* const* p) noexcept {
    float d[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) d[lane] = task.format->scales(p[lane]).d;
    return {load_8(d), zero_8()};
  }
  using Block = quant::Integers256;
  static Block open(const LinearTask& task, const std::byte* p) noexcept {
    Block integers;
    task.format->integers(p, integers);
    return integers;
  }
  static SubScales sub_scales(const Block& block) noexcept {
    return {{vld1q_s16(block.scale), vld1q_s16(block.scale + 8)}, {}};
  }
  static void unpack(const Block& block, int half, int8x16_t* w) noexcept {
    for (int i = 0; i < 8; ++i) w[i] = vld1q_s8(block.w + 128 * half + 16 * i);
  }
};

// Calls result.template of<Format>() with the class of the format: blocks of 32 and superblocks apart.
template <class Result>
auto with_unpack_a32(tensor::DType dtype, const Result& result) noexcept -> decltype(result.template of<UnpackQ4_0>()) {
  using tensor::DType;
  switch (dtype) {
    case DType::Q4_0: return result.template of<UnpackQ4_0>();
    case DType::Q4_1: return result.template of<UnpackQ4_1>();
    case DType::Q5_0: return result.template of<UnpackQ5_0>();
    case DType::Q5_1: return result.template of<UnpackQ5_1>();
    case DType::Q8_0: return result.template of<UnpackQ8_0>();
    case DType::IQ4_NL: return result.template of<UnpackIQ4_NL>();
    case DType::MXFP4: return result.template of<UnpackMXFP4>();
    default: return {};
  }
}
template <class Result>
auto with_unpack_a256(tensor::DType dtype, const Result& result) noexcept -> decltype(result.template of<UnpackAny>()) {
  using tensor::DType;
  switch (dtype) {
    case DType::Q2_K: return result.template of<UnpackQ2_K>();
    case DType::Q3_K: return result.template of<UnpackQ3_K>();
    case DType::Q4_K: return result.template of<UnpackQ4_K>();
    case DType::Q5_K: return result.template of<UnpackQ5_K>();
    case DType::Q6_K: return result.template of<UnpackQ6_K>();
    case DType::IQ4_XS: return result.template of<UnpackIQ4_XS>();
    default: return result.template of<UnpackAny>();
  }
}

}  // namespace
}  // namespace assay::backend::cpu
