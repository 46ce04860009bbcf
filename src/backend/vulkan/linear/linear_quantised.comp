#version 460
// dot/1 (ops/linear/linear.h): weights in blocks times activations as integers. An invocation has one of the 8 chunks of a row, for kTokens tokens:
// it unpacks a weight once for all of them.
//
//   workgroup   row 0  | chunk 0 | 1 | .. | 7 |  --tree-->  y[token, row 0]
//               row 1  | chunk 0 | 1 | .. | 7 |  --tree-->  y[token, row 1]  .. row 7
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "linear/formats.glsl"
#include "linear/experts.glsl"

layout(local_size_x = 8, local_size_y = 8) in;
layout(constant_id = 11) const uint kTokens = 1u;
layout(constant_id = 12) const uint kPlanes = 2u;

layout(push_constant) uniform Push {
  Words w, q, l;
  Floats d;
  Ints sums_q, sums_l;
  Floats bias, y;
  Experts experts;  // of these a token is a pair, and kTokens is 1
  uint n_rows, n_cols, n_tokens, row_bytes, has_bias;
} push;

shared float sums[64 * kTokens];  // [row][chunk][token]

// Bytes of weights times bytes of activations, which have a sign.
int dot_of(uint w, uint q) {
  return int(w & 0xFFu) * bitfieldExtract(int(q), 0, 8) + int((w >> 8) & 0xFFu) * bitfieldExtract(int(q), 8, 8) +
         int((w >> 16) & 0xFFu) * bitfieldExtract(int(q), 16, 8) + int(w >> 24) * bitfieldExtract(int(q), 24, 8);
}

float joined(int high, int low) { return kPlanes == 2u ? fused(0.0078125, float(low), float(high)) : float(high); }

void main() {
  const uint chunk = gl_LocalInvocationID.x, first = gl_WorkGroupID.y * kTokens;
  const uint row = (gl_WorkGroupID.z * gl_NumWorkGroups.x + gl_WorkGroupID.x) * 8u + gl_LocalInvocationID.y;
  const uint place = (gl_LocalInvocationID.y * 8u + chunk) * kTokens;
  const uint n_tokens = min(kTokens, push.n_tokens - first);
  const uint n_blocks = push.n_cols / block_elements(), n_groups = block_elements() / 16u;
  const uint weight_row = weight_row_of(push.experts, first, row);
  for (uint t = 0u; t < kTokens; ++t) sums[place + t] = 0.0;
  if (row < push.n_rows) {
    const uint end = (chunk + 1u) * n_blocks / 8u;
    for (uint b = chunk * n_blocks / 8u; b < end; ++b) {
      const uint block = weight_row * push.row_bytes + b * block_bytes();
      int high[kTokens], low[kTokens], min_high[kTokens], min_low[kTokens];
      for (uint t = 0u; t < kTokens; ++t) high[t] = low[t] = min_high[t] = min_low[t] = 0;
      for (uint g = 0u; g < n_groups; ++g) {
        const ivec2 scales = group_scales(push.w, block, g);
        const uvec4 w = uvec4(group_bytes(push.w, block, g, 0u), group_bytes(push.w, block, g, 1u), group_bytes(push.w, block, g, 2u),
                              group_bytes(push.w, block, g, 3u));
        for (uint t = 0u; t < kTokens; ++t) {
          const uint group = x_row_of(push.experts, first + min(t, n_tokens - 1u)) * (push.n_cols / 16u) + b * n_groups + g;
          const int sum_q = push.sums_q.at[group];
          int dot = -offset_of_bytes() * sum_q;
          for (uint i = 0u; i < 4u; ++i) dot += dot_of(w[i], push.q.at[4u * group + i]);
          high[t] += scales.x * dot;
          if (has_min()) min_high[t] += scales.y * sum_q;
          if (kPlanes == 2u) {
            const int sum_l = push.sums_l.at[group];
            int dot_l = -offset_of_bytes() * sum_l;
            for (uint i = 0u; i < 4u; ++i) dot_l += dot_of(w[i], push.l.at[4u * group + i]);
            low[t] += scales.x * dot_l;
            if (has_min()) min_low[t] += scales.y * sum_l;
          }
        }
      }
      const vec2 s = block_scales(push.w, block);
      for (uint t = 0u; t < kTokens; ++t) {
        const float f = joined(high[t], low[t]);
        const float term = has_min() ? fused(s.x, f, mul(s.y, joined(min_high[t], min_low[t]))) : mul(s.x, f);
        sums[place + t] = fused(push.d.at[x_row_of(push.experts, first + min(t, n_tokens - 1u)) * n_blocks + b], term, sums[place + t]);
      }
    }
  }
  barrier();
  if (row >= push.n_rows) return;
  for (uint t = chunk; t < n_tokens; t += 8u) {  // the invocations of a row share its tokens
    float c[8];
    for (uint i = 0u; i < 8u; ++i) c[i] = sums[(gl_LocalInvocationID.y * 8u + i) * kTokens + t];
    float y = add(add(add(c[0], c[1]), add(c[2], c[3])), add(add(c[4], c[5]), add(c[6], c[7])));
    if (push.has_bias != 0u) y = add(y, push.bias.at[weight_row]);
    push.y.at[(first + t) * push.n_rows + row] = y;
  }
}
