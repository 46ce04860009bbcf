#version 460
// The dot of float weights, and in mode f32 of any format decoded (dot_f32_ref of quant/activations.h): each of the 8 chunks of a row in 32 lanes.
//
//   workgroup: one row, kTokens tokens     chunk 0 | lane 0 | 1 | .. | 31 |  folded 16, 8, 4, 2, 1
//                                          chunk 1 | lane 0 | 1 | .. | 31 |  ..  chunk 7, then the tree
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "linear/formats.glsl"
#include "linear/experts.glsl"

layout(local_size_x = 32, local_size_y = 8) in;
layout(constant_id = 11) const uint kTokens = 1u;

layout(push_constant) uniform Push {
  Words w;
  Floats x, bias, y;
  Experts experts;  // of these a token is a pair, and kTokens is 1
  uint n_rows, n_cols, n_tokens, row_bytes, has_bias;
} push;

shared float sums[256 * kTokens];  // [token][chunk][lane]

void main() {
  const uint lane = gl_LocalInvocationID.x, chunk = gl_LocalInvocationID.y, first = gl_WorkGroupID.y * kTokens;
  const uint row = gl_WorkGroupID.z * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  if (row >= push.n_rows) return;
  const uint weight_row = weight_row_of(push.experts, first, row);
  WeightRow weights = WeightRow(push.w, weight_row * push.row_bytes, push.n_cols / block_elements());
  const uint place = chunk * 32u + lane;
  const uint n_tokens = min(kTokens, push.n_tokens - first), n_blocks = (push.n_cols + 31u) / 32u;
  float c[kTokens];
  for (uint t = 0u; t < kTokens; ++t) c[t] = 0.0;
  const uint end = min(push.n_cols, (chunk + 1u) * n_blocks / 8u * 32u);
  for (uint j = chunk * n_blocks / 8u * 32u + lane; j < end; j += 32u) {
    const float w = decoded(weights, j);
    for (uint t = 0u; t < kTokens; ++t) c[t] = fused(w, push.x.at[x_row_of(push.experts, first + min(t, n_tokens - 1u)) * push.n_cols + j], c[t]);
  }
  for (uint t = 0u; t < kTokens; ++t) sums[256u * t + place] = c[t];
  for (uint width = 16u; width >= 1u; width /= 2u) {
    barrier();
    for (uint t = 0u; t < kTokens && lane < width; ++t) sums[256u * t + place] = add(sums[256u * t + place], sums[256u * t + place + width]);
  }
  barrier();
  if (chunk != 0u) return;
  for (uint t = lane; t < n_tokens; t += 32u) {
    float at[8];
    for (uint i = 0u; i < 8u; ++i) at[i] = sums[256u * t + 32u * i];
    float y = add(add(add(at[0], at[1]), add(at[2], at[3])), add(add(at[4], at[5]), add(at[6], at[7])));
    if (push.has_bias != 0u) y = add(y, push.bias.at[weight_row]);
    push.y.at[(first + t) * push.n_rows + row] = y;
  }
}
