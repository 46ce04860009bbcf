// Weight formats, as src/quant/ has them, one by specialisation constant. A block is seen in groups of 16 weights of one scale: their integers as bytes with a
// sign, four in a word.
//
//   weight = d * scale[group] * byte [+ m * min[group]]       blocks of 32: scale = min = 1
//
// A row on the device begins at a multiple of 16 bytes, with like parts of its n blocks together where the file's blocks are no multiple of 16 (linear/matrices.h):
//
//   Q4_0  | 16 n quants | 2 n d |              Q4_1  | 16 n quants | 4 n d, m |           Q8_0  | 32 n quants | 2 n d |
//   Q5_0  | 16 n quants | 4 n high | 2 n d |   Q5_1  | 16 n quants | 4 n high | 4 n d, m |
//   Q6_K  | 128 n low | 64 n high | 16 n scales | 2 n d |                                 others: as in the file
#ifndef ASSAY_FORMATS_GLSL
#define ASSAY_FORMATS_GLSL

#include "linear/block_layout.glsl"

layout(constant_id = 10) const uint kFormat = 0u;
// As kernels.cpp numbers them.
const uint kF32 = 0u, kF16 = 1u, kBF16 = 2u, kQ4_0 = 3u, kQ4_1 = 4u, kQ5_0 = 5u, kQ5_1 = 6u, kQ8_0 = 7u, kQ4_K = 8u, kQ5_K = 9u, kQ6_K = 10u;

bool of_superblocks() { return kFormat >= kQ4_K; }
uint block_elements() { return of_superblocks() ? 256u : kFormat >= kQ4_0 ? 32u : 1u; }
bool has_min() { return kFormat == kQ4_1 || kFormat == kQ5_1 || kFormat == kQ4_K || kFormat == kQ5_K; }

// A row of a matrix: its first byte, and how many blocks it has.
struct WeightRow {
  Words w;
  uint begin, n;
};

uvec4 wide(WeightRow r, uint byte) { return Vectors(r.w).at[(r.begin + byte) >> 4]; }
uint word_at(WeightRow r, uint byte) { return r.w.at[(r.begin + byte) >> 2]; }

// d and m of a block; of the K-quants m is -dmin.
vec2 block_scales(WeightRow r, uint b) {
  switch (kFormat) {
    case kQ4_0: return vec2(half_to_float(memory_half(r.w, r.begin + kBlock4Scales * r.n + kScaleBytes * b)), 0.0);
    case kQ4_1: return halves_to_floats(word_at(r, kBlock4Scales * r.n + kScaleAndMinBytes * b));
    case kQ5_0: return vec2(half_to_float(memory_half(r.w, r.begin + kBlock5Scales * r.n + kScaleBytes * b)), 0.0);
    case kQ5_1: return halves_to_floats(word_at(r, kBlock5Scales * r.n + kScaleAndMinBytes * b));
    case kQ8_0: return vec2(half_to_float(memory_half(r.w, r.begin + kBlock8Scales * r.n + kScaleBytes * b)), 0.0);
    case kQ6_K: return vec2(half_to_float(memory_half(r.w, r.begin + kQ6KFactor * r.n + kScaleBytes * b)), 0.0);
    default: {
      const vec2 s = halves_to_floats(word_at(r, (kFormat == kQ4_K ? kQ4KBytes : kQ5KBytes) * b));
      return vec2(s.x, negated(s.y));
    }
  }
}

ivec2 scales_of_head(uvec4 head, uint group);
// Scale and minimum of a group of a superblock.
ivec2 group_scales(WeightRow r, uint b, uint group) {
  if (kFormat == kQ6_K) return ivec2(bitfieldExtract(int(word_at(r, kQ6KScales * r.n + kQ6KScalesBytes * b + (group & 12u)) >> (8u * (group & 3u))), 0, 8), 0);
  if (!of_superblocks()) return ivec2(1);
  return scales_of_head(wide(r, (kFormat == kQ4_K ? kQ4KBytes : kQ5KBytes) * b), group);
}
ivec2 scales_of_head(uvec4 head, uint group) {
  const uint i = group / 2u, shift = 8u * (i & 3u);
  const uint first = head.y >> shift, second = head.z >> shift;
  if (i < 4u) return ivec2(first & 63u, second & 63u);
  const uint low = head.w >> shift;
  return ivec2((low & 15u) | (((first >> 6) & 3u) << 4), ((low >> 4) & 15u) | (((second >> 6) & 3u) << 4));
}

// Bits of a word to the fifth bits of four bytes.
uint fifth_bits(uint bits) { return ((bits & 1u) << 4) | ((bits & 2u) << 11) | ((bits & 4u) << 18) | ((bits & 8u) << 25); }

// Bytes from 0 to 63 less an offset.
uvec4 less(uvec4 bytes, uint offset) { return ((bytes | 0x80808080u) - offset * 0x01010101u) ^ 0x80808080u; }

// The 16 weights of a group.
uvec4 group_bytes(WeightRow r, uint b, uint group) {
  switch (kFormat) {
    case kQ4_0: return less((wide(r, kBlock4Quants * b) >> (4u * group)) & 0x0F0F0F0Fu, 8u);  // the second group is in the high nibbles
    case kQ4_1: return (wide(r, kBlock4Quants * b) >> (4u * group)) & 0x0F0F0F0Fu;
    case kQ5_0: case kQ5_1: {
      const uint bits = word_at(r, kBlock5High * r.n + kBlock5HighBytes * b) >> (16u * group);
      const uvec4 high = uvec4(fifth_bits(bits), fifth_bits(bits >> 4), fifth_bits(bits >> 8), fifth_bits(bits >> 12));
      const uvec4 bytes = ((wide(r, kBlock4Quants * b) >> (4u * group)) & 0x0F0F0F0Fu) | high;
      return kFormat == kQ5_0 ? less(bytes, 16u) : bytes;
    }
    case kQ8_0: return wide(r, kBlock8Quants * b + 16u * group);
    case kQ4_K: return (wide(r, kQ4KBytes * b + kQ4KLow + 32u * (group >> 2) + 16u * (group & 1u)) >> (2u * (group & 2u))) & 0x0F0F0F0Fu;
    case kQ5_K: {
      const uvec4 low = (wide(r, kQ5KBytes * b + kQ5KLow + 32u * (group >> 2) + 16u * (group & 1u)) >> (2u * (group & 2u))) & 0x0F0F0F0Fu;
      return low | (((wide(r, kQ5KBytes * b + kQ5KHigh + 16u * (group & 1u)) >> (group >> 1)) & 0x01010101u) << 4);
    }
    default: {  // Q6_K, in halves of 8 groups
      const uint part = group & 7u;
      const uvec4 low = (wide(r, kQ6KLowBytes * b + 64u * (group >> 3) + 16u * (part & 3u)) >> (part & 4u)) & 0x0F0F0F0Fu;
      const uvec4 high = wide(r, kQ6KHigh * r.n + kQ6KHighBytes * b + 32u * (group >> 3) + 16u * (part & 1u)) >> (2u * (part >> 1));
      return less(low | ((high & 0x03030303u) << 4), 32u);
    }
  }
}

// What 64 weights of a superblock are made of, as it lies in memory: all that an invocation asks for is on its way together. A quarter has 4 groups of 16 weights
// that lie in the same words; which: group_of.
struct Quarter {
  uvec4 low[2], high[2], head;  // head: of Q4_K and Q5_K with the block's d and m; of Q6_K two words of scales, and d
};

// A block of 32 has two groups.
uint group_of(uint quarter, uint i) {
  if (!of_superblocks()) return i;
  return kFormat == kQ6_K ? 8u * (quarter >> 1) + (quarter & 1u) + 2u * i : 4u * quarter + i;
}

Quarter quarter_at(WeightRow r, uint b, uint quarter) {
  Quarter x;
  if (kFormat == kQ6_K) {
    const uint half_at = quarter >> 1, part = quarter & 1u;
    x.low[0] = wide(r, kQ6KLowBytes * b + 64u * half_at + 16u * part);
    x.low[1] = wide(r, kQ6KLowBytes * b + 64u * half_at + 16u * part + 32u);
    x.high[0] = wide(r, kQ6KHigh * r.n + kQ6KHighBytes * b + 32u * half_at + 16u * part);
    x.head = uvec4(word_at(r, kQ6KScales * r.n + kQ6KScalesBytes * b + 8u * half_at), word_at(r, kQ6KScales * r.n + kQ6KScalesBytes * b + 8u * half_at + 4u), memory_half(r.w, r.begin + kQ6KFactor * r.n + kScaleBytes * b), 0u);
    return x;
  }
  const uint at = (kFormat == kQ4_K ? kQ4KBytes : kQ5KBytes) * b, low_at = at + (kFormat == kQ4_K ? kQ4KLow : kQ5KLow) + 32u * quarter;
  x.head = wide(r, at);
  x.low[0] = wide(r, low_at);
  x.low[1] = wide(r, low_at + 16u);
  if (kFormat == kQ5_K) {
    x.high[0] = wide(r, at + kQ5KHigh);
    x.high[1] = wide(r, at + (kQ5KHigh + 16u));
  }
  return x;
}

// Of group i of the quarter.
uvec4 quarter_bytes(Quarter x, uint quarter, uint i) {
  const uvec4 low = (x.low[i & 1u] >> (2u * (i & 2u))) & 0x0F0F0F0Fu;
  if (kFormat == kQ4_K) return low;
  if (kFormat == kQ5_K) return low | (((x.high[i & 1u] >> (2u * quarter + (i >> 1))) & 0x01010101u) << 4);
  return less(low | (((x.high[0] >> (2u * i)) & 0x03030303u) << 4), 32u);
}
ivec2 quarter_scales(Quarter x, uint quarter, uint i) {
  if (kFormat == kQ6_K) return ivec2(bitfieldExtract(int(x.head[i >> 1] >> (8u * ((quarter & 1u) + 2u * (i & 1u)))), 0, 8), 0);
  return scales_of_head(x.head, 4u * quarter + i);
}
vec2 scales_of_quarter(Quarter x) {  // of its block
  if (kFormat == kQ6_K) return vec2(half_to_float(x.head.z), 0.0);
  const vec2 s = halves_to_floats(x.head.x);
  return vec2(s.x, negated(s.y));
}

// Element j of a row, every operation rounded once.
float decoded(WeightRow r, uint j) {
  if (kFormat == kF32) return uintBitsToFloat(memory_word(r.w, r.begin + 4u * j));
  if (kFormat == kF16) return half_to_float(memory_half(r.w, r.begin + 2u * j));
  if (kFormat == kBF16) return uintBitsToFloat(memory_half(r.w, r.begin + 2u * j) << 16);
  const uint b = j / block_elements(), e = j % block_elements(), group = e / 16u;
  const int weight = bitfieldExtract(int(group_bytes(r, b, group)[(e % 16u) / 4u] >> (8u * (e & 3u))), 0, 8);
  const vec2 s = block_scales(r, b);
  if (!of_superblocks()) {
    const float product = mul(s.x, float(weight));
    return has_min() ? add(product, s.y) : product;
  }
  const ivec2 of_group = group_scales(r, b, group);
  const float product = mul(mul(s.x, float(of_group.x)), float(weight));
  return has_min() ? add(product, mul(s.y, float(of_group.y))) : product;
}

#endif
