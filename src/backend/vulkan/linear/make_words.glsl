// The body of twin.comp. Included once for each set of names (num/seen.glsl).
#include "num/block_steps.glsl"
#include "linear/quantise_words.glsl"
#include "rows/activated.glsl"

void make_words() {
  const uint row = gl_WorkGroupID.y, first = gl_WorkGroupID.x * 1024u + 4u * gl_LocalInvocationIndex, begin = row * push.k + first;
  vec4 x = vec4(0.0);
  for (uint i = 0u; i < 4u && first < push.k; ++i) {
    x[i] = push.x.at[begin + i];
#if ASSAY_OPERATION == 1
    x[i] = mul(activated(x[i]), push.up.at[begin + i]);
    push.y.at[begin + i] = x[i];
#endif
  }
  quantise_words(x, first, push.k, push.twin, row * twin_words(push.k, kPlanes, kBlock));
}
