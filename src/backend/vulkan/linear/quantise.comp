#version 460
// Rows of floats as integers: activations A32 and A256 with one or two planes (quant/activations.h). An invocation has 16 elements.
//
//   workgroup   | group 0 | 1 | 2 | .. | 15 |    A32: two groups a block; A256: all 16 are one block
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"

layout(local_size_x = 16) in;
layout(constant_id = 10) const uint kGroups = 16u;  // of a block
layout(constant_id = 11) const uint kPlanes = 2u;

layout(push_constant) uniform Push {
  Floats x;
  Words q, l;           // four elements a word
  Floats d;             // of blocks
  Ints sums_q, sums_l;  // of groups
  uint n_groups;        // of all rows
} push;

shared uint largest[16];

float clamped(float x, float limit) { return is_greater(x, limit) ? limit : is_greater(-limit, x) ? -limit : x; }

void main() {
  const uint lane = gl_LocalInvocationID.x, group = (gl_WorkGroupID.z * gl_NumWorkGroups.x + gl_WorkGroupID.x) * 16u + lane;
  const bool is_there = group < push.n_groups;
  uint most = 0u;
  for (uint i = 0u; is_there && i < 16u; ++i) most = max(most, magnitude_of(push.x.at[16u * group + i]));
  largest[lane] = most;
  barrier();
  if (!is_there) return;
  const uint first = lane / kGroups * kGroups;
  for (uint i = first; i < first + kGroups; ++i) most = max(most, largest[i]);
  float d = 0.0, r = 0.0;
  if (most >= kInfinity) {
    d = uintBitsToFloat(kNaN);
  } else if (most >= 0x0D800000u) {  // 2^-100
    const float amax = uintBitsToFloat(most), inverse = uintBitsToFloat(0x3C010204u);  // 1 / 127
    const float near = mul(amax, inverse);
    d = fused(fused(negated(near), 127.0, amax), inverse, near);
    r = quotient(127.0, amax);
  }
  if (lane == first) push.d.at[group / kGroups] = d;
  int sum_q = 0, sum_l = 0;
  for (uint i = 0u; i < 4u; ++i) {
    uint word_q = 0u, word_l = 0u;
    for (uint j = 0u; r != 0.0 && j < 4u; ++j) {
      const float x = push.x.at[16u * group + 4u * i + j];
      const float high = clamped(rint_small(mul(x, r)), 127.0);
      word_q |= (uint(int(high)) & 0xFFu) << (8u * j);
      sum_q += int(high);
      if (kPlanes == 2u) {
        const int low = int(clamped(rint_small(mul(128.0, fused(x, r, negated(high)))), 64.0));
        word_l |= (uint(low) & 0xFFu) << (8u * j);
        sum_l += low;
      }
    }
    push.q.at[4u * group + i] = word_q;
    if (kPlanes == 2u) push.l.at[4u * group + i] = word_l;
  }
  push.sums_q.at[group] = sum_q;
  if (kPlanes == 2u) push.sums_l.at[group] = sum_l;
}
