// Makes a twin's row (linear/twin.glsl) by workgroups of 256 invocations, each with 4 elements at a time: 1024 in one go.
//
//   invocation 0 | 1 | 2 | 3 |  a group of 16: sums       8 (A32) or 64 (A256) invocations: a block
#ifndef ASSAY_QUANTISE_GLSL
#define ASSAY_QUANTISE_GLSL
#include "linear/twin.glsl"
#include "num/steps.glsl"

layout(constant_id = 10) const uint kBlock = 256u;  // of the twin; 0: there is none
layout(constant_id = 11) const uint kPlanes = 2u;

shared uint largest[32];              // of blocks
shared int sums_q[64], sums_l[64];    // of groups

// Elements first .. first + 3 of a row of k, whose twin begins at that word; beyond the row's end: nothing. By all invocations together. What is lost here
// to subnormals is far below half of an integer.
void quantise_words(vec4 x, uint first, uint k, Words twin, uint begin) {
  const uint thread = gl_LocalInvocationIndex;
  const bool is_there = first < k;
  barrier();  // those before have read what is shared
  if (thread < 64u) sums_q[thread] = sums_l[thread] = 0;
  if (thread < 32u) largest[thread] = 0u;
  barrier();
  const uint block = 4u * thread / max(kBlock, 1u);
  if (is_there) atomicMax(largest[block], max(max(magnitude_of(x[0]), magnitude_of(x[1])), max(magnitude_of(x[2]), magnitude_of(x[3]))));
  barrier();
  const vec2 steps = is_there ? block_steps(largest[block]) : vec2(0.0);
  uint word_q = 0u, word_l = 0u;
  int sum_q = 0, sum_l = 0;
  for (uint j = 0u; steps.y != 0.0 && j < 4u; ++j) {
    const float high = clamped(add_normal(add_normal(mul_normal(x[j], steps.y), kRoundMagic), -kRoundMagic), 127.0);
    word_q |= (uint(int(high)) & 0xFFu) << (8u * j);
    sum_q += int(high);
    if (kPlanes == 2u) {
      const float rest = mul_normal(128.0, fused_normal(x[j], steps.y, negated(high)));
      const int low = int(clamped(add_normal(add_normal(rest, kRoundMagic), -kRoundMagic), 64.0));
      word_l |= (uint(low) & 0xFFu) << (8u * j);
      sum_l += low;
    }
  }
  if (is_there) {
    twin.at[begin + first / 4u] = word_q;
    if (kPlanes == 2u) twin.at[begin + twin_l(k) + first / 4u] = word_l;
    if (first % max(kBlock, 1u) == 0u) twin.at[begin + twin_d(k, kPlanes) + first / max(kBlock, 1u)] = floatBitsToUint(steps.x);
    atomicAdd(sums_q[thread / 4u], sum_q);
    if (kPlanes == 2u) atomicAdd(sums_l[thread / 4u], sum_l);
  }
  barrier();
  if (is_there && thread % 4u == 0u) {
    const uint at = twin_sums(k, kPlanes, max(kBlock, 1u)) + first / 16u;
    twin.at[begin + at] = uint(sums_q[thread / 4u]);
    if (kPlanes == 2u) twin.at[begin + at + k / 16u] = uint(sums_l[thread / 4u]);
  }
}

#endif
