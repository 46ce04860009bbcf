#version 460
// Products of few tokens: every weight is read once, by wide loads. ASSAY_OPERATION: bit 0: the device's dot of bytes; bit 1: experts.
//
//   team of 32, 64 or 128: kRows rows   K-quants   4 invocations a superblock, each with 64 weights -> parts -> terms
//                                       others     an invocation has whole blocks                   ----------> terms
//                                       then       8 chunks a row, chains of terms -> tree -> y[token, row]
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

layout(local_size_x = 32, local_size_x_id = 20, local_size_y_id = 13) in;
layout(constant_id = 11) const uint kTokens = 1u;
layout(constant_id = 12) const uint kPlanes = 2u;
layout(constant_id = 14) const uint kRows = 1u;     // of a team
layout(constant_id = 15) const uint kBlocks = 8u;   // of a row
layout(constant_id = 16) const uint kSegment = 8u;  // superblocks whose parts are kept at a time; others: 1
layout(constant_id = 17) const uint kTerms = 8u;    // of all teams
layout(constant_id = 18) const uint kParts = 32u;
layout(constant_id = 19) const uint kChains = 8u;

#include "linear/products.glsl"

uint first_row, first_token;  // of the team
WeightRow team_row(uint r) { return matrix_row(first_token, first_row + r); }
uint team_x(uint t) { return x_row(first_token + t); }

shared float terms[kTerms];    // [team][row][token][block]
shared ivec4 parts[kParts];    // [team][row][token][superblock][quarter]: q, l, minima of q, of l
shared vec2 block_steps_of[kParts / 4u];  // [team][row][superblock]
shared float chains[kChains];  // [team][row][token][chunk]
shared uint has_small[32];     // [team][row][token]
shared float x_steps[kTokens * kBlocks];  // [token][block]

ivec4 sums[kRows * kTokens];  // [row][token]

// Dots of one group of every row, at this group of x.
void add_dots(uint at, uvec4 w[kRows], ivec2 scales[kRows]) {
  for (uint t = 0u; t < kTokens; ++t) {
    const uint x = team_x(t);
    const uvec4 q = x_words(x, 0u, at);
    const int sum_q = has_min() ? x_sum(x, 0u, at) : 0;
    for (uint r = 0u; r < kRows; ++r) sums[r * kTokens + t] += ivec4(scales[r].x * dot_of(w[r], q), 0, scales[r].y * sum_q, 0);
    if (kPlanes == 2u) {
      const uvec4 l = x_words(x, 1u, at);
      const int sum_l = has_min() ? x_sum(x, 1u, at) : 0;
      for (uint r = 0u; r < kRows; ++r) sums[r * kTokens + t] += ivec4(0, scales[r].x * dot_of(w[r], l), 0, scales[r].y * sum_l);
    }
  }
}

// Dots of a quarter of block b, for every row and token.
Quarter quarters[kRows];
void find_quarter_dots(uint b, uint quarter) {
  for (uint r = 0u; r < kRows; ++r) quarters[r] = quarter_at(team_row(r), b, quarter);
  for (uint i = 0u; i < kRows * kTokens; ++i) sums[i] = ivec4(0);
  for (uint i = 0u; i < 4u; ++i) {
    uvec4 w[kRows];
    ivec2 scales[kRows];
    for (uint r = 0u; r < kRows; ++r) {
      w[r] = quarter_bytes(quarters[r], quarter, i);
      scales[r] = quarter_scales(quarters[r], quarter, i);
    }
    add_dots(16u * b + group_of(quarter, i), w, scales);
  }
}

// Dots of a block of 32.
void find_block_dots(uint b) {
  for (uint i = 0u; i < kRows * kTokens; ++i) sums[i] = ivec4(0);
  uvec4 w[2u * kRows];  // loads of both groups first
  for (uint i = 0u; i < 2u * kRows; ++i) w[i] = group_bytes(team_row(i % kRows), b, i / kRows);
  for (uint group = 0u; group < 2u; ++group) {
    uvec4 of_group[kRows];
    ivec2 scales[kRows];
    for (uint r = 0u; r < kRows; ++r) {
      of_group[r] = w[group * kRows + r];
      scales[r] = ivec2(1);
    }
    add_dots(2u * b + group, of_group, scales);
  }
}

// The chains of the team's outputs. By all invocations of the workgroup.
void find_chains() {
  const uint lane = gl_LocalInvocationID.x, n_lanes = gl_WorkGroupSize.x, n_outputs = kRows * kTokens, first_output = gl_LocalInvocationID.y * n_outputs;
  for (uint i = gl_LocalInvocationIndex; i < kTokens * kBlocks; i += n_lanes * gl_WorkGroupSize.y) x_steps[i] = x_step(team_x(i / kBlocks), i % kBlocks);
  if (of_superblocks()) {
    for (uint begin = 0u; begin < kBlocks; begin += kSegment) {
      const uint n = min(kSegment, kBlocks - begin);
      for (uint i = lane; i < 4u * n; i += n_lanes) {
        find_quarter_dots(begin + i / 4u, i & 3u);
        for (uint o = 0u; o < n_outputs; ++o) parts[(first_output + o) * kSegment * 4u + i] = sums[o];
        for (uint r = 0u; r < kRows && (i & 3u) == 0u; ++r) block_steps_of[((gl_LocalInvocationID.y * kRows + r) * kSegment) + i / 4u] = scales_of_quarter(quarters[r]);
      }
      barrier();
      for (uint i = lane; i < n * n_outputs; i += n_lanes) {
        const uint o = i / n, b = i % n, at = ((first_output + o) * kSegment + b) * 4u;
        const ivec4 sum = parts[at] + parts[at + 1u] + parts[at + 2u] + parts[at + 3u];
        terms[(first_output + o) * kBlocks + begin + b] = term_of(block_steps_of[(gl_LocalInvocationID.y * kRows + o / kTokens) * kSegment + b], sum);
      }
      barrier();
    }
  } else {
    for (uint b = lane; b < kBlocks; b += n_lanes) {
      vec2 scales[kRows];
      for (uint r = 0u; r < kRows; ++r) scales[r] = block_scales(team_row(r), b);
      find_block_dots(b);
      for (uint o = 0u; o < n_outputs; ++o) terms[(first_output + o) * kBlocks + b] = term_of(scales[o / kTokens], sums[o]);
    }
    barrier();
  }
  if (lane < n_outputs) has_small[first_output + lane] = 0u;
  barrier();
  for (uint i = lane; i < 8u * n_outputs; i += n_lanes) {  // of steps that are not small they are multiples of 2^-126
    const uint o = i / 8u, chunk = i & 7u, end = (chunk + 1u) * kBlocks / 8u;
    float c = 0.0;
    for (uint b = chunk * kBlocks / 8u; b < end; ++b) {
      const float step = x_steps[o % kTokens * kBlocks + b];
      if (is_small(step, -72)) has_small[first_output + o] = 1u;
      c = fused_normal(step, terms[(first_output + o) * kBlocks + b], c);
    }
    chains[(first_output + o) * 8u + chunk] = c;
  }
  barrier();
}

// Output o of the team, once its chains are there.
float team_output(uint o) {
  const uint place = gl_LocalInvocationID.y * kRows * kTokens + o, at = 8u * place;
  if (has_small[place] != 0u) return slow_product(first_row + o / kTokens, first_token + o % kTokens);
  return add_normal(add_normal(add_normal(chains[at], chains[at + 1u]), add_normal(chains[at + 2u], chains[at + 3u])),
                    add_normal(add_normal(chains[at + 4u], chains[at + 5u]), add_normal(chains[at + 6u], chains[at + 7u])));
}

void main() {
  first_token = gl_WorkGroupID.y * kTokens;
  first_row = find_product(row_group(), gl_WorkGroupSize.y * kRows) + gl_LocalInvocationID.y * kRows;
  find_chains();
  for (uint o = gl_LocalInvocationID.x; o < kRows * kTokens; o += gl_WorkGroupSize.x) {
    const uint row = first_row + o / kTokens, token = first_token + o % kTokens;
    if (row >= product.n_rows || token >= push.n_tokens) continue;
    float y = team_output(o);
    if (product.has_bias != 0u) y = add(y, product.bias.at[weight_row(token, row)]);
    product.y.at[token * product.n_rows + row] = y;
  }
}
