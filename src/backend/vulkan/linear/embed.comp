#version 460
// Rows of the table of tokens, decoded and scaled (ops/embed/embed.h).
//
//   workgroup (token, piece of 64 elements)     invocation: an element     table --> register: decoded, scaled --> y
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "linear/formats.glsl"

layout(local_size_x = 64) in;  // a workgroup has 64 elements of a row

layout(push_constant) uniform Push {
  Words table;
  Ints tokens;
  Floats y;
  uint n_cols, row_bytes;
  float scale;
} push;

void main() {
  const uint token = gl_WorkGroupID.x, row = uint(push.tokens.at[token]) * push.row_bytes;
  const uint j = gl_WorkGroupID.y * 64u + gl_LocalInvocationID.x;
  if (j < push.n_cols) push.y.at[token * push.n_cols + j] = mul(decoded(WeightRow(push.table, row, push.n_cols / block_elements()), j), push.scale);
}
