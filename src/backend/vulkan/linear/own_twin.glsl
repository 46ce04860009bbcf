// What linear_one.comp does ahead of its products: the row of floats that they read as integers (linear/twin.glsl), in shared memory. Included once for each set of
// names (num/seen.glsl).
//
//   x -> largest of each block -> steps -> q_words, l_words -> sums of groups of 16
#include "num/block_steps.glsl"

void own_twin() {
  const uint thread = gl_LocalInvocationIndex, n_threads = gl_WorkGroupSize.x * gl_WorkGroupSize.y, n = kRowGroups * 4u;  // n: words of a plane
  vec4 xs[kHeld];
  for (uint i = 0u; i < kHeld; ++i) xs[i] = uintBitsToFloat(Vectors(push.x).at[min(thread + n_threads * i, n - 1u)]);
  barrier();  // whoever computes this again has read what is shared
  for (uint b = thread; b < kBlocks; b += n_threads) largest[b] = 0u;
  barrier();
  for (uint i = 0u; i < kHeld && thread + n_threads * i < n; ++i) {
    const uint most = max(max(magnitude_of(xs[i][0]), magnitude_of(xs[i][1])), max(magnitude_of(xs[i][2]), magnitude_of(xs[i][3])));
    atomicMax(largest[4u * (thread + n_threads * i) / block_elements()], most);
  }
  barrier();
  for (uint b = thread; b < kBlocks; b += n_threads) steps[b] = block_steps(largest[b]);
  barrier();
  for (uint i = 0u; i < kHeld && thread + n_threads * i < n; ++i) {
    const uint word = thread + n_threads * i;
    const float inverse = steps[4u * word / block_elements()].y;
    uint word_q = 0u, word_l = 0u;
    for (uint e = 0u; inverse != 0.0 && e < 4u; ++e) {
      const float high = first_plane(xs[i][e], inverse);
      word_q |= (uint(int(high)) & 0xFFu) << (8u * e);
      if (kPlanes == 2u) word_l |= (uint(int(second_plane(xs[i][e], inverse, high))) & 0xFFu) << (8u * e);
    }
    q_words[word / 4u][word & 3u] = word_q;
    if (kPlanes == 2u) l_words[word / 4u][word & 3u] = word_l;
  }
  barrier();
  for (uint g = thread; has_min() && g < kRowGroups; g += n_threads) {
    q_sums[g] = dot_of(q_words[g], uvec4(0x01010101u));
    if (kPlanes == 2u) l_sums[g] = dot_of(l_words[g], uvec4(0x01010101u));
  }
  barrier();
}
