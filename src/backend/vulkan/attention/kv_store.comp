#version 460
// Rows of keys or values into the cache (ops/attention/kv_store.h). An invocation writes whole words: an f32, two f16, or 17 words with two
// blocks of q8_0.
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "attention/cache.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 10) const uint kType = kCacheF16;

layout(push_constant) uniform Push {
  Floats x;
  Words cache;
  Ints positions, sequences;
  uint n_ctx, width;  // width: elements of all heads
} push;

float clamped(float x, float limit) { return is_greater(x, limit) ? limit : is_greater(-limit, x) ? -limit : x; }

// Activations A32 of one plane, the scale as a half: byte `at` of the words on.
void encode_block(uint from, inout uint words[17], uint at) {
  uint most = 0u;
  for (uint j = 0u; j < 32u; ++j) most = max(most, magnitude_of(push.x.at[from + j]));
  float d = 0.0, r = 0.0;
  if (most >= kInfinity) {
    d = uintBitsToFloat(kNaN);
  } else if (most >= 0x0D800000u) {  // 2^-100
    const float amax = uintBitsToFloat(most), inverse = uintBitsToFloat(0x3C010204u);  // 1 / 127
    const float near = mul(amax, inverse);
    d = fused(fused(negated(near), 127.0, amax), inverse, near);
    r = quotient(127.0, amax);
  }
  words[at / 4u] |= float_to_half(d) << (8u * (at & 3u));
  for (uint j = 0u; r != 0.0 && j < 32u; ++j) {
    const uint q = uint(int(clamped(rint_small(mul(push.x.at[from + j], r)), 127.0))) & 0xFFu;
    words[(at + 2u + j) / 4u] |= q << (8u * ((at + 2u + j) & 3u));
  }
}

void main() {
  const uint token = gl_WorkGroupID.x;
  const uint place = (uint(push.sequences.at[token]) * push.n_ctx + uint(push.positions.at[token])) * (cache_row_bytes(kType, push.width) / 4u);
  if (kType == kCacheQ8_0) {
    for (uint pair = gl_LocalInvocationID.x; pair < push.width / 64u; pair += 64u) {
      uint words[17];
      for (uint i = 0u; i < 17u; ++i) words[i] = 0u;
      encode_block(token * push.width + 64u * pair, words, 0u);
      encode_block(token * push.width + 64u * pair + 32u, words, 34u);
      for (uint i = 0u; i < 17u; ++i) push.cache.at[place + 17u * pair + i] = words[i];
    }
  } else if (kType == kCacheF16) {
    for (uint i = gl_LocalInvocationID.x; i < push.width / 2u; i += 64u) {
      const uint from = token * push.width + 2u * i;
      push.cache.at[place + i] = float_to_half(push.x.at[from]) | (float_to_half(push.x.at[from + 1u]) << 16);
    }
  } else {
    for (uint i = gl_LocalInvocationID.x; i < push.width; i += 64u) push.cache.at[place + i] = floatBitsToUint(push.x.at[token * push.width + i]);
  }
}
