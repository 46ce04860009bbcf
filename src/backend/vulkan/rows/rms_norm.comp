#version 460
// Runs of d elements by their root mean square (ops/rows/rms_norm.h). A workgroup of 32 lanes has one run: Lanes32.
//
//   storage x --> registers: lane j has the squares of elements j, j + 32, .. --> shared `lanes`: 16, 8, 4, 2, 1
//   storage x, read again, times 1 / root, times w --> y
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"

layout(local_size_x = 32) in;

layout(push_constant) uniform Push {
  Floats x, w, y;
  uint d, has_weights, n_runs;
  float eps;
} push;

shared float lanes[32];

void main() {
  const uint lane = gl_LocalInvocationID.x;
  for (uint run = gl_WorkGroupID.x; run < push.n_runs; run += gl_NumWorkGroups.x) {
    const uint begin = run * push.d;
    float sum = 0.0;
    for (uint j = lane; j < push.d; j += 32u) sum = fused(push.x.at[begin + j], push.x.at[begin + j], sum);
    barrier();  // the run before has read the lanes
    lanes[lane] = sum;
    for (uint width = 16u; width >= 1u; width /= 2u) {
      barrier();
      if (lane < width) lanes[lane] = add(lanes[lane], lanes[lane + width]);
    }
    barrier();
    const float r = quotient(1.0, root(add(quotient(lanes[0], float(push.d)), push.eps)));
    for (uint j = lane; j < push.d; j += 32u) {
      const float y = mul(push.x.at[begin + j], r);
      push.y.at[begin + j] = push.has_weights != 0u ? mul(y, push.w.at[j]) : y;
    }
  }
}
