#version 460
// One operation by the functions of num/num.glsl on each triple of operands (probe/probe.h): the one that ASSAY_OPERATION names when this is compiled.
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#if ASSAY_OPERATION == 6
#include "linear/dot.glsl"
#endif

layout(local_size_x = 64) in;

layout(push_constant) uniform Push {
  Words a, b, c, y;
  uint n, operation;
} push;

uint computed(uint of_a, uint of_b, uint of_c) {
  const float a = uintBitsToFloat(of_a), b = uintBitsToFloat(of_b), c = uintBitsToFloat(of_c);
#if ASSAY_OPERATION == 0
  return floatBitsToUint(add(a, b));
#elif ASSAY_OPERATION == 1
  return floatBitsToUint(mul(a, b));
#elif ASSAY_OPERATION == 2
  return floatBitsToUint(fused(a, b, c));
#elif ASSAY_OPERATION == 3
  return floatBitsToUint(quotient(a, b));
#elif ASSAY_OPERATION == 4
  return floatBitsToUint(root(a));
#elif ASSAY_OPERATION == 5
  return floatBitsToUint(float(int(of_a)));
#elif ASSAY_OPERATION == 6
  return uint(dot_of(of_a, of_b));
#elif ASSAY_OPERATION == 7
  return floatBitsToUint(half_to_float(of_a & 0xFFFFu));
#elif ASSAY_OPERATION == 8
  return float_to_half(a);
#elif ASSAY_OPERATION == 9
  return is_greater(a, b) ? 1u : 0u;
#elif ASSAY_OPERATION == 10
  return floatBitsToUint(exponential(a));
#elif ASSAY_OPERATION == 11
  return floatBitsToUint(tanh_of(a));
#elif ASSAY_OPERATION == 12
  return floatBitsToUint(silu(a));
#elif ASSAY_OPERATION == 13
  return floatBitsToUint(gelu_tanh(a));
#elif ASSAY_OPERATION == 14
  return floatBitsToUint(sigmoid(a));
#elif ASSAY_OPERATION == 15
  return floatBitsToUint(relu_squared(a));
#else
  return floatBitsToUint(softcap(a, 30.0));
#endif
}

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < push.n; i += gl_NumWorkGroups.x * 64u) {
    push.y.at[i] = computed(push.a.at[i], push.b.at[i], push.c.at[i]);
  }
}
