#version 460
// The device's own operations on each triple of operands (probe/probe.h).
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/memory.glsl"

layout(local_size_x = 64) in;

layout(push_constant) uniform Push {
  Words a, b, c, y;
  uint n, operation;  // as ProbeOperation
} push;

uint computed(uint of_a, uint of_b, uint of_c) {
  const float a = uintBitsToFloat(of_a), b = uintBitsToFloat(of_b), c = uintBitsToFloat(of_c);
  switch (push.operation) {
    case 0: return floatBitsToUint(a + b);
    case 1: return floatBitsToUint(a * b);
    case 2: return floatBitsToUint(fma(a, b, c));
    case 3: return floatBitsToUint(a / b);
    case 4: return floatBitsToUint(sqrt(a));
    default: return floatBitsToUint(unpackHalf2x16(of_a & 0xFFFFu).x);
  }
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < push.n; i += gl_NumWorkGroups.x * 64u) {
    push.y.at[i] = computed(push.a.at[i], push.b.at[i], push.c.at[i]);
  }
}
