#version 460
// A value's twin alone, or the twin of a gate with the gate (ops/rows/gate.h): ASSAY_OPERATION 0 or 1. A workgroup has 1024 elements of a row.
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "linear/quantise.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 12) const uint kActivation = 0u;
#include "rows/activated.glsl"

layout(push_constant) uniform Push {
  Floats x, up, y;  // x: the rows, or what goes through the activation
  Words twin;
  uint k;
} push;

void main() {
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
