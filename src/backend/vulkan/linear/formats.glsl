// Weight formats, as src/quant/ has them, one by specialisation constant. A block is seen in groups of 16 weights of one scale: their integers as
// bytes from 0 up, four in a word, which are kOffset too high.
//
//   weight = d * scale[group] * (byte - kOffset) [+ m * min[group]]       blocks of 32: scale = min = 1
#ifndef ASSAY_FORMATS_GLSL
#define ASSAY_FORMATS_GLSL

layout(constant_id = 10) const uint kFormat = 0u;
// As formats.h has them.
const uint kF32 = 0u, kF16 = 1u, kBF16 = 2u, kQ4_0 = 3u, kQ4_1 = 4u, kQ5_0 = 5u, kQ5_1 = 6u, kQ8_0 = 7u, kQ4_K = 8u, kQ5_K = 9u, kQ6_K = 10u;

uint block_elements() { return kFormat >= kQ4_K ? 256u : kFormat >= kQ4_0 ? 32u : 1u; }
uint block_bytes() {
  switch (kFormat) {
    case kF32: return 4u;
    case kF16: case kBF16: return 2u;
    case kQ4_0: return 18u;
    case kQ4_1: return 20u;
    case kQ5_0: return 22u;
    case kQ5_1: return 24u;
    case kQ8_0: return 34u;
    case kQ4_K: return 144u;
    case kQ5_K: return 176u;
    default: return 210u;
  }
}
bool has_min() { return kFormat == kQ4_1 || kFormat == kQ5_1 || kFormat == kQ4_K || kFormat == kQ5_K; }
int offset_of_bytes() {
  switch (kFormat) {
    case kQ4_0: return 8;
    case kQ5_0: return 16;
    case kQ8_0: return 128;
    case kQ6_K: return 32;
    default: return 0;
  }
}

// d and m of the block at this byte; of the K-quants m is -dmin.
vec2 block_scales(Words w, uint block) {
  if (kFormat == kQ6_K) return vec2(half_to_float(memory_half(w, block + 208u)), 0.0);
  const float d = half_to_float(memory_half(w, block));
  if (!has_min()) return vec2(d, 0.0);
  const float m = half_to_float(memory_half(w, block + 2u));
  return vec2(d, kFormat >= kQ4_K ? negated(m) : m);
}

// Scale and minimum of a group of a superblock.
ivec2 group_scales(Words w, uint block, uint group) {
  if (kFormat == kQ6_K) return ivec2(bitfieldExtract(int(memory_byte(w, block + 192u + group)), 0, 8), 0);
  if (kFormat < kQ4_K) return ivec2(1);
  const uint i = group / 2u, packed = block + 4u;
  if (i < 4u) return ivec2(memory_byte(w, packed + i) & 63u, memory_byte(w, packed + i + 4u) & 63u);
  const uint low = memory_byte(w, packed + i + 4u);
  return ivec2((low & 15u) | ((memory_byte(w, packed + i - 4u) >> 6) << 4), (low >> 4) | ((memory_byte(w, packed + i) >> 6) << 4));
}

// Bits of a word to the fifth bits of four bytes.
uint fifth_bits(uint bits) { return ((bits & 1u) << 4) | ((bits & 2u) << 11) | ((bits & 4u) << 18) | ((bits & 8u) << 25); }

// Weights 4 i .. 4 i + 3 of a group as bytes, kOffset too high.
uint group_bytes(Words w, uint block, uint group, uint i) {
  const uint nibbles = 4u * group;  // of blocks of 32: the second group is in the high ones
  switch (kFormat) {
    case kQ4_0: return (memory_word(w, block + 2u + 4u * i) >> nibbles) & 0x0F0F0F0Fu;
    case kQ4_1: return (memory_word(w, block + 4u + 4u * i) >> nibbles) & 0x0F0F0F0Fu;
    case kQ5_0:
      return ((memory_word(w, block + 6u + 4u * i) >> nibbles) & 0x0F0F0F0Fu) | fifth_bits(memory_word(w, block + 2u) >> (16u * group + 4u * i));
    case kQ5_1:
      return ((memory_word(w, block + 8u + 4u * i) >> nibbles) & 0x0F0F0F0Fu) | fifth_bits(memory_word(w, block + 4u) >> (16u * group + 4u * i));
    case kQ8_0: return memory_word(w, block + 2u + 16u * group + 4u * i) ^ 0x80808080u;
    case kQ4_K: case kQ5_K: {
      const uint at = 16u * (group & 1u) + 4u * i;  // of the 32 bytes of a quarter
      const uint low = (memory_word(w, block + (kFormat == kQ4_K ? 16u : 48u) + 32u * (group >> 2) + at) >> (4u * ((group >> 1) & 1u))) & 0x0F0F0F0Fu;
      return kFormat == kQ4_K ? low : low | (((memory_word(w, block + 16u + at) >> (group >> 1)) & 0x01010101u) << 4);
    }
    default: {  // Q6_K, in halves of 8 groups
      const uint part = group & 7u;
      const uint low = (memory_word(w, block + 64u * (group >> 3) + 16u * (part & 3u) + 4u * i) >> (4u * (part >> 2))) & 0x0F0F0F0Fu;
      const uint high = memory_word(w, block + 128u + 32u * (group >> 3) + 16u * (part & 1u) + 4u * i) >> (2u * (part >> 1));
      return low | ((high & 0x03030303u) << 4);
    }
  }
}

// Element j of the row that begins at this byte, every operation rounded once.
float decoded(Words w, uint row, uint j) {
  if (kFormat == kF32) return uintBitsToFloat(memory_word(w, row + 4u * j));
  if (kFormat == kF16) return half_to_float(memory_half(w, row + 2u * j));
  if (kFormat == kBF16) return uintBitsToFloat(memory_half(w, row + 2u * j) << 16);
  const uint block = row + j / block_elements() * block_bytes(), e = j % block_elements(), group = e / 16u;
  const int weight = int((group_bytes(w, block, group, (e % 16u) / 4u) >> (8u * (e & 3u))) & 0xFFu) - offset_of_bytes();
  const vec2 s = block_scales(w, block);
  if (block_elements() == 32u) {
    const float product = mul(s.x, float(weight));
    return has_min() ? add(product, s.y) : product;
  }
  const ivec2 of_group = group_scales(w, block, group);
  const float product = mul(mul(s.x, float(of_group.x)), float(weight));
  return has_min() ? add(product, mul(s.y, float(of_group.y))) : product;
}

#endif
