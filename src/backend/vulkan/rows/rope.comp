#version 460
// Pairs of a head turned by tables that the host made (ops/attention/rope.h). An invocation has one pair, or two elements that pass through.
//
//   workgroup: a token     invocation i: pairs i, i + 64, .. of all heads     x, table --> registers --> y
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"

layout(local_size_x = 64) in;

layout(push_constant) uniform Push {
  Floats x, table, y;  // table: a row a position, cosines, then sines
  Ints positions;
  uint n_heads, head_dim, dim, interleaved;
} push;

void main() {
  const uint token = gl_WorkGroupID.x, n_pairs = (push.head_dim + 1u) / 2u;
  const uint angles = uint(push.positions.at[token]) * push.dim;
  for (uint p = gl_LocalInvocationID.x; p < push.n_heads * n_pairs; p += 64u) {
    const uint begin = (token * push.n_heads + p / n_pairs) * push.head_dim, i = p % n_pairs;
    if (2u * i >= push.dim) {
      for (uint j = 2u * i; j < min(2u * i + 2u, push.head_dim); ++j) push.y.at[begin + j] = push.x.at[begin + j];
      continue;
    }
    const uint a = begin + (push.interleaved != 0u ? 2u * i : i), b = begin + (push.interleaved != 0u ? 2u * i + 1u : i + push.dim / 2u);
    const float x_a = push.x.at[a], x_b = push.x.at[b];
    const float cosine = push.table.at[angles + i], sine = push.table.at[angles + push.dim / 2u + i];
    push.y.at[a] = fused(x_a, cosine, negated(mul(x_b, sine)));
    push.y.at[b] = fused(x_a, sine, mul(x_b, cosine));
  }
}
