#version 460
// Products of few tokens: every weight is read once, by wide loads. ASSAY_OPERATION: bit 0: the device's dot of bytes; bit 1: experts; bit 2: K-quants alone, by
// chunks: then invocations 4 i .. of 32 have chunk i, a quarter of each of its superblocks each, and hand their integers to one another.
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
#if (ASSAY_OPERATION & 4) != 0
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
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

uint lane, team, first_row, first_token;  // first_: of the team
WeightRow team_row(uint r) { return matrix_row(first_token, first_row + r); }
uint team_x(uint t) { return x_row(first_token + t); }

shared float chains[kChains];  // [team][row][token][chunk]
shared uint has_small[32];     // [team][row][token]
#if (ASSAY_OPERATION & 4) != 0
// Who an invocation is goes by its subgroup, which hands over what it asks for; subgroups have 4 invocations or more.
void find_place() {
  const uint place = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
  lane = place % 32u;
  team = place / 32u;
}
int sum_of_quarters(int x) {
  x += subgroupShuffleXor(x, 1u);
  return x + subgroupShuffleXor(x, 2u);
}

void find_chains() {
  const uint n_outputs = kRows * kTokens, quarter = lane & 3u, begin = lane / 4u * kBlocks / 8u, end = (lane / 4u + 1u) * kBlocks / 8u;
  if (lane < n_outputs) has_small[team * n_outputs + lane] = 0u;
  barrier();
  float c[kRows * kTokens];
  [[unroll]] for (uint o = 0u; o < kRows * kTokens; ++o) c[o] = 0.0;
  for (uint i = 0u; i < (kBlocks + 7u) / 8u; ++i) {  // all as often: those that wait for one another
    const uint b = min(begin + i, kBlocks - 1u);
    Quarter w[kRows];
    [[unroll]] for (uint r = 0u; r < kRows; ++r) w[r] = quarter_at(team_row(r), b, quarter);
    [[unroll]] for (uint t = 0u; t < kTokens; ++t) {
      const uint x = team_x(t);
      const float step = x_step(x, b);
      ivec4 sums[kRows];
      [[unroll]] for (uint r = 0u; r < kRows; ++r) sums[r] = ivec4(0);
      [[unroll]] for (uint g = 0u; g < 4u; ++g) {
        const uint at = 16u * b + group_of(quarter, g);
        const uvec4 q = x_words(x, 0u, at), l = kPlanes == 2u ? x_words(x, 1u, at) : uvec4(0u);
        const int sum_q = has_min() ? x_sum(x, 0u, at) : 0, sum_l = kPlanes == 2u && has_min() ? x_sum(x, 1u, at) : 0;
        [[unroll]] for (uint r = 0u; r < kRows; ++r) {
          const uvec4 bytes = quarter_bytes(w[r], quarter, g);
          const ivec2 scales = quarter_scales(w[r], quarter, g);
          sums[r].x += scales.x * dot_of(bytes, q);
          if (has_min()) sums[r].z += scales.y * sum_q;
          if (kPlanes == 2u) sums[r].y += scales.x * dot_of(bytes, l);
          if (kPlanes == 2u && has_min()) sums[r].w += scales.y * sum_l;
        }
      }
      [[unroll]] for (uint r = 0u; r < kRows; ++r) {
        ivec4 sum = ivec4(sum_of_quarters(sums[r].x), 0, 0, 0);
        if (kPlanes == 2u) sum.y = sum_of_quarters(sums[r].y);
        if (has_min()) sum.z = sum_of_quarters(sums[r].z);
        if (kPlanes == 2u && has_min()) sum.w = sum_of_quarters(sums[r].w);
        const float term = term_of(scales_of_quarter(w[r]), sum);
        if (begin + i < end) c[r * kTokens + t] = fused_normal(step, term, c[r * kTokens + t]);
        if (begin + i < end && is_small(step, -72)) has_small[team * n_outputs + r * kTokens + t] = 1u;  // else multiples of 2^-126
      }
    }
  }
  if (quarter == 0u) {
    [[unroll]] for (uint o = 0u; o < kRows * kTokens; ++o) chains[(team * n_outputs + o) * 8u + lane / 4u] = c[o];
  }
  barrier();
}
#else
void find_place() {
  lane = gl_LocalInvocationID.x;
  team = gl_LocalInvocationID.y;
}

shared float terms[kTerms];    // [team][row][token][block]
shared ivec4 parts[kParts];    // [team][row][token][superblock][quarter]: q, l, minima of q, of l
shared vec2 block_steps_of[kParts / 4u];  // [team][row][superblock]
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
  const uint n_lanes = gl_WorkGroupSize.x, n_outputs = kRows * kTokens, first_output = team * n_outputs;
  for (uint i = gl_LocalInvocationIndex; i < kTokens * kBlocks; i += n_lanes * gl_WorkGroupSize.y) x_steps[i] = x_step(team_x(i / kBlocks), i % kBlocks);
  if (of_superblocks()) {
    for (uint begin = 0u; begin < kBlocks; begin += kSegment) {
      const uint n = min(kSegment, kBlocks - begin);
      for (uint i = lane; i < 4u * n; i += n_lanes) {
        find_quarter_dots(begin + i / 4u, i & 3u);
        for (uint o = 0u; o < n_outputs; ++o) parts[(first_output + o) * kSegment * 4u + i] = sums[o];
        for (uint r = 0u; r < kRows && (i & 3u) == 0u; ++r) block_steps_of[((team * kRows + r) * kSegment) + i / 4u] = scales_of_quarter(quarters[r]);
      }
      barrier();
      for (uint i = lane; i < n * n_outputs; i += n_lanes) {
        const uint o = i / n, b = i % n, at = ((first_output + o) * kSegment + b) * 4u;
        const ivec4 sum = parts[at] + parts[at + 1u] + parts[at + 2u] + parts[at + 3u];
        terms[(first_output + o) * kBlocks + begin + b] = term_of(block_steps_of[(team * kRows + o / kTokens) * kSegment + b], sum);
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
#endif

// Output o of the team, once its chains are there.
float team_output(uint o) {
  const uint place = team * kRows * kTokens + o, at = 8u * place;
  if (has_small[place] != 0u) return slow_product(first_row + o / kTokens, first_token + o % kTokens);
  return add_normal(add_normal(add_normal(chains[at], chains[at + 1u]), add_normal(chains[at + 2u], chains[at + 3u])),
                    add_normal(add_normal(chains[at + 4u], chains[at + 5u]), add_normal(chains[at + 6u], chains[at + 7u])));
}

void main() {
  find_place();
  first_token = gl_WorkGroupID.y * kTokens;
  first_row = find_product(row_group(), gl_WorkGroupSize.y * kRows) + team * kRows;
  find_chains();
  for (uint o = lane; o < kRows * kTokens; o += gl_WorkGroupSize.x) {
    const uint row = first_row + o / kTokens, token = first_token + o % kTokens;
    if (row >= product.n_rows || token >= push.n_tokens) continue;
    float y = team_output(o);
    if (product.has_bias != 0u) y = add(y, product.bias.at[weight_row(token, row)]);
    product.y.at[token * product.n_rows + row] = y;
  }
}
