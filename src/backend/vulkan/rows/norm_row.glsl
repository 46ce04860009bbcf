// The body of norm.comp. Included once for each set of names (num/seen.glsl).
#include "num/block_steps.glsl"
#include "linear/quantise_words.glsl"

// 1 / root(mean of squares + eps) of the row. Below 2^-63 a square may be subnormal, and sums of squares only grow.
float inverse_root(float eps) {
  const uint thread = gl_LocalInvocationIndex;
  if (thread == 0u) has_small = 0u;
  barrier();
  for (uint j = thread; j < kWidth; j += 256u) {
    if (is_small(row[j], -63)) has_small = 1u;
  }
  barrier();
  if (thread < 32u) {
    float sum = 0.0;
    if (has_small == 0u) {
      for (uint j = thread; j < kWidth; j += 32u) sum = fused_normal(row[j], row[j], sum);
    } else {
      for (uint j = thread; j < kWidth; j += 32u) sum = fused(row[j], row[j], sum);
    }
    lanes[thread] = sum;
  }
  for (uint width = 16u; width >= 1u; width /= 2u) {
    barrier();
    if (thread < width) lanes[thread] = add(lanes[thread], lanes[thread + width]);
  }
  barrier();
  return quotient(1.0, root(add(quotient(lanes[0], float(kWidth)), eps)));
}

void norm_row() {
  const uint thread = gl_LocalInvocationIndex, begin = gl_WorkGroupID.x * kWidth;
  float xs[kHeld], others[kHeld], weights[kHeld];  // all loads first: what is written between them would make each wait for the one before
  for (uint i = 0u; i < kHeld; ++i) {
    const uint j = thread + 256u * i;
    if (j >= kWidth) break;
    xs[i] = push.a.at[begin + j];
    if (kAdds != 0u) others[i] = push.b.at[begin + j];
    weights[i] = push.w.at[j];
  }
  if (kFirst != 0u) {
    for (uint i = 0u; i < kHeld && thread + 256u * i < kWidth; ++i) row[thread + 256u * i] = kFirst == 1u ? xs[i] : others[i];
    const float r = inverse_root(push.first_eps);
    for (uint i = 0u; i < kHeld && thread + 256u * i < kWidth; ++i) {
      const uint j = thread + 256u * i;
      const float y = mul(mul(row[j], r), push.first_w.at[j]);
      push.first_y.at[begin + j] = y;
      if (kFirst == 1u) {
        xs[i] = y;
      } else {
        others[i] = y;
      }
    }
  }
  for (uint i = 0u; i < kHeld && thread + 256u * i < kWidth; ++i) {
    const uint j = thread + 256u * i;
    if (kAdds != 0u) {
      xs[i] = add(xs[i], others[i]);
      push.x.at[begin + j] = xs[i];
    }
    row[j] = xs[i];
  }
  const float r = inverse_root(push.eps);
  for (uint i = 0u; i < kHeld && thread + 256u * i < kWidth; ++i) {
    const uint j = thread + 256u * i;
    push.y.at[begin + j] = row[j] = mul(mul(xs[i], r), weights[i]);
  }
  if (kBlock == 0u) return;
  barrier();
  const uint twin = gl_WorkGroupID.x * twin_words(kWidth, kPlanes, kBlock);
  for (uint piece = 0u; piece < kWidth; piece += 1024u) {
    const uint first = piece + 4u * thread;
    vec4 x = vec4(0.0);
    for (uint i = 0u; i < 4u && first < kWidth; ++i) x[i] = row[first + i];
    quantise_words(x, first, kWidth, push.twin, twin);
  }
}
