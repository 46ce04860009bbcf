// The body of norm.comp. Included once for each set of names (num/seen.glsl).
#include "num/block_steps.glsl"
#include "linear/quantise_words.glsl"
#include "rows/inverse_root.glsl"

void norm_row() {
  const uint thread = gl_LocalInvocationIndex, n_threads = gl_WorkGroupSize.x, begin = gl_WorkGroupID.x * kWidth;
  float xs[kHeld], others[kHeld], weights[kHeld];  // all loads first: what is written between them would make each wait for the one before
  for (uint i = 0u; i < kHeld; ++i) {
    const uint j = thread + n_threads * i;
    if (j >= kWidth) break;
    xs[i] = push.a.at[begin + j];
    if (kAdds != 0u) others[i] = push.b.at[begin + j];
    weights[i] = push.w.at[j];
  }
  if (kFirst != 0u) {
    for (uint i = 0u; i < kHeld && thread + n_threads * i < kWidth; ++i) row[thread + n_threads * i] = kFirst == 1u ? xs[i] : others[i];
    const float r = inverse_root(push.first_eps);
    for (uint i = 0u; i < kHeld && thread + n_threads * i < kWidth; ++i) {
      const uint j = thread + n_threads * i;
      const float y = mul(mul(row[j], r), push.first_w.at[j]);
      push.first_y.at[begin + j] = y;
      if (kFirst == 1u) {
        xs[i] = y;
      } else {
        others[i] = y;
      }
    }
  }
  for (uint i = 0u; i < kHeld && thread + n_threads * i < kWidth; ++i) {
    const uint j = thread + n_threads * i;
    if (kAdds != 0u) {
      xs[i] = add(xs[i], others[i]);
      push.x.at[begin + j] = xs[i];
    }
    row[j] = xs[i];
  }
  const float r = inverse_root(push.eps);
  for (uint i = 0u; i < kHeld && thread + n_threads * i < kWidth; ++i) {
    const uint j = thread + n_threads * i;
    push.y.at[begin + j] = row[j] = mul(mul(xs[i], r), weights[i]);
  }
  if (kBlock == 0u) return;
  barrier();
  const uint twin = gl_WorkGroupID.x * twin_words(kWidth, kPlanes, kBlock);
  for (uint piece = 0u; piece < kWidth; piece += 4u * n_threads) {
    const uint first = piece + 4u * thread;
    vec4 x = vec4(0.0);
    for (uint i = 0u; i < 4u && first < kWidth; ++i) x[i] = row[first + i];
    quantise_words(x, first, kWidth, push.twin, twin);
  }
}
