#version 460
// Rows chosen by the batch (ops/rows/select_outputs.h), or columns of a row (ops/rows/slice.h): copied.
//
//   workgroup (row, piece of 256 elements)     invocation i: elements i, i + 64, ..     x --> y, bits as they are
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/memory.glsl"

layout(local_size_x = 64) in;  // a workgroup has 256 elements of a row

layout(push_constant) uniform Push {
  Words x, y;
  Ints rows;  // of x, one for each row of y; not read where all of them are meant
  uint x_cols, first_col, y_cols, n_rows, all_rows;
} push;

void main() {
  const uint i = gl_WorkGroupID.z * gl_NumWorkGroups.x + gl_WorkGroupID.x, begin = gl_WorkGroupID.y * 256u, end = min(push.y_cols, begin + 256u);
  if (i >= push.n_rows) return;
  const uint from = push.all_rows != 0u ? i : uint(push.rows.at[i]);
  for (uint j = begin + gl_LocalInvocationID.x; j < end; j += 64u) push.y.at[i * push.y_cols + j] = push.x.at[from * push.x_cols + push.first_col + j];
}
