#version 460
// The device's own dot of packed bytes, for devices that have one (probe/probe.h).
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require
#include "num/memory.glsl"
#include "linear/dot.glsl"

layout(local_size_x = 64) in;

layout(push_constant) uniform Push {
  Words a, b, c, y;
  uint n, operation;
} push;

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < push.n; i += gl_NumWorkGroups.x * 64u) push.y.at[i] = uint(dot_of(push.a.at[i], push.b.at[i]));
}
