#version 460
// Row ops that compute each element by itself: ops/rows/add.h, gate.h, activate.h, scale.h, softcap.h, add_columns.h, scale_columns.h. Which: ASSAY_OPERATION
// when this is compiled.
//
//   invocation i     elements i, i + all invocations, .. of all rows     storage a, b --> register --> y
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"

layout(local_size_x = 64) in;
layout(constant_id = 10) const uint kActivation = 0u;
#include "rows/activated.glsl"

layout(push_constant) uniform Push {
  Floats a, b, y;
  uint n, width;  // elements of all rows; of gate: elements of y for each of a; of columns: of a row
  float factor;
} push;

float element(uint i) {
#if ASSAY_OPERATION == 0
  return add(push.a.at[i], push.b.at[i]);
#elif ASSAY_OPERATION == 1
  return mul(activated(push.a.at[i / push.width]), push.b.at[i]);
#elif ASSAY_OPERATION == 2
  return activated(push.a.at[i]);
#elif ASSAY_OPERATION == 3
  return mul(push.a.at[i], push.factor);
#elif ASSAY_OPERATION == 4
  return softcap(push.a.at[i], push.factor);
#elif ASSAY_OPERATION == 5
  return add(push.a.at[i], push.b.at[i % push.width]);
#else
  return mul(push.a.at[i], push.b.at[i % push.width]);
#endif
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < push.n; i += gl_NumWorkGroups.x * 64u) push.y.at[i] = element(i);
}
