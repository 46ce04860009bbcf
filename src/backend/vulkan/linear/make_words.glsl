// The body of twin.comp. Included once for each set of names (num/seen.glsl).
#include "num/block_steps.glsl"
#include "linear/quantise_words.glsl"
#include "rows/activated.glsl"

void make_words() {
  const uint row = gl_WorkGroupID.y, first = gl_WorkGroupID.x * 1024u + 4u * gl_LocalInvocationIndex, begin = row * push.k + first;
  vec4 x = vec4(0.0);
  if (first < push.k) {
    x = uintBitsToFloat(Vectors(push.x).at[begin / 4u]);
#if ASSAY_OPERATION == 1
    const vec4 up = uintBitsToFloat(Vectors(push.up).at[begin / 4u]);
    for (uint i = 0u; i < 4u; ++i) {
      x[i] = mul(activated(x[i]), up[i]);
      push.y.at[begin + i] = x[i];
    }
#endif
  }
  quantise_words(x, first, push.k, push.twin, row * twin_words(push.k, kPlanes, kBlock));
}
