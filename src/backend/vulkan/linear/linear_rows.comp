#version 460
// Products of few tokens: every weight is read once, by wide loads. ASSAY_OPERATION: bit 0: the device's dot of bytes; bit 1: experts.
//
//   team of 32: kRows rows         K-quants   4 invocations a superblock, each with 64 weights -> parts -> terms
//                                  others     an invocation has whole blocks                   ----------> terms
//                                  then       8 chunks a row, chains of terms -> tree -> y[token, row]
//
// Integers are summed in any order; floats in the contract's.
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#if (ASSAY_OPERATION & 1) != 0
#extension GL_EXT_spirv_intrinsics : require
#endif
#include "num/num.glsl"
#include "num/memory.glsl"
#include "linear/formats.glsl"
#include "linear/twin.glsl"
#include "linear/dot.glsl"
#include "linear/experts.glsl"

layout(local_size_x = 32, local_size_y_id = 13) in;
layout(constant_id = 11) const uint kTokens = 1u;
layout(constant_id = 12) const uint kPlanes = 2u;
layout(constant_id = 14) const uint kRows = 1u;     // of a team
layout(constant_id = 15) const uint kBlocks = 8u;   // of a row
layout(constant_id = 16) const uint kSegment = 8u;  // superblocks whose parts are kept at a time; others: 1
layout(constant_id = 17) const uint kTerms = 8u;    // of all teams
layout(constant_id = 18) const uint kParts = 32u;
layout(constant_id = 19) const uint kChains = 8u;

#include "linear/products.glsl"

const uint kLanes = 32u;
shared float terms[kTerms];    // [team][row][token][block]
shared ivec4 parts[kParts];    // [team][row][token][superblock][quarter]: q, l, minima of q, of l
shared float chains[kChains];  // [team][row][token][chunk]
shared uint has_small[32];     // [team][row][token]

// The 4 groups of 16 weights of a quarter of a superblock: such as lie in the same words. A block of 32 has two groups.
uint group_of(uint quarter, uint i) {
  if (!of_superblocks()) return i;
  return kFormat == kQ6_K ? 8u * (quarter >> 1) + (quarter & 1u) + 2u * i : 4u * quarter + i;
}

uint first_row, first_token;    // of the team
ivec4 sums[kRows * kTokens];    // [row][token]

// Dots of quarter `quarter` of block b, for every row and token.
void find_dots(uint b, uint quarter) {
  const uint n_groups = of_superblocks() ? 4u : 2u, k = kBlocks * block_elements();
  for (uint i = 0u; i < kRows * kTokens; ++i) sums[i] = ivec4(0);
  for (uint i = 0u; i < n_groups; ++i) {
    const uint group = group_of(quarter, i), at = b * (block_elements() / 16u) + group;
    uvec4 w[kRows];
    ivec2 scales[kRows];
    for (uint r = 0u; r < kRows; ++r) {
      WeightRow row = matrix_row(first_token, first_row + r);
      w[r] = group_bytes(row, b, group);
      scales[r] = group_scales(row, b, group);
    }
    for (uint t = 0u; t < kTokens; ++t) {
      const uint x = x_row(first_token + t), sum_at = x + twin_sums(k, kPlanes, block_elements()) + at;
      const uvec4 q = Vectors(push.x).at[x / 4u + at];
      const int sum_q = has_min() ? int(push.x.at[sum_at]) : 0;
      for (uint r = 0u; r < kRows; ++r) sums[r * kTokens + t] += ivec4(scales[r].x * dot_of(w[r], q), 0, scales[r].y * sum_q, 0);
      if (kPlanes == 2u) {
        const uvec4 l = Vectors(push.x).at[(x + twin_l(k)) / 4u + at];
        const int sum_l = has_min() ? int(push.x.at[sum_at + k / 16u]) : 0;
        for (uint r = 0u; r < kRows; ++r) sums[r * kTokens + t] += ivec4(0, scales[r].x * dot_of(w[r], l), 0, scales[r].y * sum_l);
      }
    }
  }
}

void main() {
  const uint lane = gl_LocalInvocationID.x, team = gl_LocalInvocationID.y, k = kBlocks * block_elements(), n_outputs = kRows * kTokens;
  first_token = gl_WorkGroupID.y * kTokens;
  first_row = find_product(gl_WorkGroupSize.y * kRows) + team * kRows;
  const uint first_output = team * n_outputs;
  if (of_superblocks()) {
    for (uint begin = 0u; begin < kBlocks; begin += kSegment) {
      const uint n = min(kSegment, kBlocks - begin);
      for (uint i = lane; i < 4u * n; i += kLanes) {
        find_dots(begin + i / 4u, i & 3u);
        for (uint o = 0u; o < n_outputs; ++o) parts[(first_output + o) * kSegment * 4u + i] = sums[o];
      }
      barrier();
      for (uint i = lane; i < n * n_outputs; i += kLanes) {
        const uint o = i / n, b = i % n, at = ((first_output + o) * kSegment + b) * 4u;
        const ivec4 sum = parts[at] + parts[at + 1u] + parts[at + 2u] + parts[at + 3u];
        WeightRow row = matrix_row(first_token, first_row + o / kTokens);
        terms[(first_output + o) * kBlocks + begin + b] = term_of(block_scales(row, begin + b), sum);
      }
      barrier();
    }
  } else {
    for (uint b = lane; b < kBlocks; b += kLanes) {
      find_dots(b, 0u);
      for (uint o = 0u; o < n_outputs; ++o) {
        const vec2 scales = block_scales(matrix_row(first_token, first_row + o / kTokens), b);
        terms[(first_output + o) * kBlocks + b] = term_of(scales, sums[o]);
      }
    }
    barrier();
  }
  if (lane < n_outputs) has_small[first_output + lane] = 0u;
  barrier();
  for (uint i = lane; i < 8u * n_outputs; i += kLanes) {  // of steps that are not small they are multiples of 2^-126
    const uint o = i / 8u, chunk = i & 7u, end = (chunk + 1u) * kBlocks / 8u, d = x_row(first_token + o % kTokens) + twin_d(k, kPlanes);
    float c = 0.0;
    for (uint b = chunk * kBlocks / 8u; b < end; ++b) {
      const float step = uintBitsToFloat(push.x.at[d + b]);
      if (is_small(step, -72)) has_small[first_output + o] = 1u;
      c = fused_normal(step, terms[(first_output + o) * kBlocks + b], c);
    }
    chains[(first_output + o) * 8u + chunk] = c;
  }
  barrier();
  for (uint o = lane; o < n_outputs; o += kLanes) {
    const uint row = first_row + o / kTokens, token = first_token + o % kTokens, at = (first_output + o) * 8u;
    if (row >= product.n_rows || token >= push.n_tokens) continue;
    float y;
    if (has_small[first_output + o] != 0u) {
      y = slow_product(row, token);
    } else {
      y = add_normal(add_normal(add_normal(chains[at], chains[at + 1u]), add_normal(chains[at + 2u], chains[at + 3u])),
                     add_normal(add_normal(chains[at + 4u], chains[at + 5u]), add_normal(chains[at + 6u], chains[at + 7u])));
    }
    if (product.has_bias != 0u) y = add(y, product.bias.at[weight_row(token, row)]);
    product.y.at[token * product.n_rows + row] = y;
  }
}
