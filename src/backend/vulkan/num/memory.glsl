// Memory of the device by address: rows of values, and bytes of weights and caches, which begin at even addresses of words.
#ifndef ASSAY_MEMORY_GLSL
#define ASSAY_MEMORY_GLSL

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Ints { int at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Vectors { uvec4 at[]; };

// i: in bytes. Of memory_byte any, else even.
uint memory_byte(Words m, uint i) { return (m.at[i >> 2] >> (8u * (i & 3u))) & 0xFFu; }
uint memory_half(Words m, uint i) { return (m.at[i >> 2] >> (8u * (i & 2u))) & 0xFFFFu; }
uint memory_word(Words m, uint i) {
  const uint low = m.at[i >> 2];
  return (i & 2u) == 0u ? low : (low >> 16) | (m.at[(i >> 2) + 1u] << 16);
}

#endif
