#version 460
// Products of many tokens, tile by tile: weights and activations are unpacked once into shared memory, 64 elements of a row at a time. ASSAY_OPERATION: bit 0:
// the device's dot of bytes.
//
//   workgroup 16 x 8        kPer x 8 rows by kPer x 16 tokens           invocation (i, j): rows j + 8 r, tokens i + 16 t
//   stage                   | group 0 | 1 | 2 | 3 | of 16 elements      4 of a superblock, or two blocks of 32
//
// An invocation has whole outputs: integers of a block, then the block's term, the chain of a chunk, and the tree as chunks end.
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

layout(local_size_x = 16, local_size_y = 8) in;
layout(constant_id = 11) const uint kPer = 4u;
layout(constant_id = 12) const uint kPlanes = 2u;
layout(constant_id = 15) const uint kBlocks = 8u;  // of a row
layout(constant_id = 16) const uint kOutputs = 16u;  // kPer * kPer

#include "linear/products.glsl"

const uint kStride = 5u;  // of a row's stage in shared memory: 4 groups, and one so that rows lie in other banks
shared uvec4 w_stage[8u * kPer * kStride], q_stage[16u * kPer * kStride], l_stage[16u * kPer * kStride];
shared ivec4 w_scales[8u * kPer], w_mins[8u * kPer], q_sums[16u * kPer], l_sums[16u * kPer];  // of the 4 groups

uint first_row, first_token;
// Per output [row][token]: integers of the block, the chunk's chain, and what the tree has so far.
int high[kOutputs], low[kOutputs], min_high[kOutputs], min_low[kOutputs];
float chain[kOutputs], pair[kOutputs], four[kOutputs], total[kOutputs];

void clear() {
  for (uint o = 0u; o < kOutputs; ++o) high[o] = low[o] = min_high[o] = min_low[o] = 0;
}

// Stage s of a row: elements 64 s .. of it.
void load(uint s) {
  const uint k = kBlocks * block_elements(), groups_of_block = block_elements() / 16u;
  for (uint i = gl_LocalInvocationIndex; i < 64u * kPer; i += 128u) {
    const uint at = i / 4u, group = i & 3u, of_row = 4u * s + group, b = of_row / groups_of_block;
    const bool is_there = of_row < k / 16u;
    uvec4 w = uvec4(0u), q = uvec4(0u), l = uvec4(0u);
    ivec2 scales = ivec2(0), sums = ivec2(0);
    if (is_there && at < 8u * kPer) {
      WeightRow row = matrix_row(0u, first_row + at);
      w = group_bytes(row, b, of_row % groups_of_block);
      if (of_superblocks()) scales = group_scales(row, b, of_row % groups_of_block);
    }
    if (is_there) {
      const uint x = x_row(first_token + at), sum = x + twin_sums(k, kPlanes, block_elements()) + of_row;
      q = Vectors(push.x).at[x / 4u + of_row];
      if (kPlanes == 2u) l = Vectors(push.x).at[(x + twin_l(k)) / 4u + of_row];
      if (has_min()) sums.x = int(push.x.at[sum]);
      if (has_min() && kPlanes == 2u) sums.y = int(push.x.at[sum + k / 16u]);
    }
    if (at < 8u * kPer) {
      w_stage[at * kStride + group] = w;
      w_scales[at][group] = scales.x;
      w_mins[at][group] = scales.y;
    }
    q_stage[at * kStride + group] = q;
    l_stage[at * kStride + group] = l;
    q_sums[at][group] = sums.x;
    l_sums[at][group] = sums.y;
  }
}

// Adds the dots of one group of the stage.
void add_group(uint group) {
  const uint i = gl_LocalInvocationID.x, j = gl_LocalInvocationID.y;
  uvec4 w[kPer];
  int scale[kPer], least[kPer];
  for (uint r = 0u; r < kPer; ++r) {
    w[r] = w_stage[(j + 8u * r) * kStride + group];
    scale[r] = of_superblocks() ? w_scales[j + 8u * r][group] : 1;
    least[r] = of_superblocks() && has_min() ? w_mins[j + 8u * r][group] : 1;
  }
  for (uint t = 0u; t < kPer; ++t) {
    const uint token = i + 16u * t;
    const uvec4 q = q_stage[token * kStride + group];
    const int sum_q = has_min() ? q_sums[token][group] : 0;
    for (uint r = 0u; r < kPer; ++r) {
      high[r * kPer + t] += scale[r] * dot_of(w[r], q);
      min_high[r * kPer + t] += least[r] * sum_q;
    }
    if (kPlanes == 2u) {
      const uvec4 l = l_stage[token * kStride + group];
      const int sum_l = has_min() ? l_sums[token][group] : 0;
      for (uint r = 0u; r < kPer; ++r) {
        low[r * kPer + t] += scale[r] * dot_of(w[r], l);
        min_low[r * kPer + t] += least[r] * sum_l;
      }
    }
  }
}

// Ends chunk `chunk`: ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7)). Sums of chains that are multiples of 2^-126.
void end_chunk(uint chunk) {
  for (uint o = 0u; o < kOutputs; ++o) {
    const float c = chain[o];
    chain[o] = 0.0;
    if ((chunk & 1u) == 0u) {
      pair[o] = c;
      continue;
    }
    const float two = add_normal(pair[o], c);
    if ((chunk & 2u) == 0u) {
      four[o] = two;
      continue;
    }
    const float sum = add_normal(four[o], two);
    total[o] = chunk == 3u ? sum : add_normal(total[o], sum);
  }
}

// Block b ends: terms of its integers into the chains. True where a step of a token's block is so small that a chain may be subnormal.
bool end_block(uint b) {
  const uint k = kBlocks * block_elements();
  bool has_small = false;
  float d[kPer];
  for (uint t = 0u; t < kPer; ++t) {
    d[t] = uintBitsToFloat(push.x.at[x_row(first_token + gl_LocalInvocationID.x + 16u * t) + twin_d(k, kPlanes) + b]);
    has_small = has_small || is_small(d[t], -72);
  }
  for (uint r = 0u; r < kPer; ++r) {
    const vec2 scales = block_scales(matrix_row(0u, first_row + gl_LocalInvocationID.y + 8u * r), b);
    for (uint t = 0u; t < kPer; ++t) {
      const uint o = r * kPer + t;
      chain[o] = fused_normal(d[t], term_of(scales, ivec4(high[o], low[o], min_high[o], min_low[o])), chain[o]);
    }
  }
  clear();
  return has_small;
}

void main() {
  first_token = gl_WorkGroupID.y * 16u * kPer;
  first_row = find_product(row_group(), 8u * kPer);
  const uint n_stages = (kBlocks * block_elements() + 63u) / 64u;
  bool has_small = false;
  uint chunk = 0u;
  clear();
  for (uint o = 0u; o < kOutputs; ++o) chain[o] = pair[o] = four[o] = total[o] = 0.0;
  for (uint s = 0u; s < n_stages; ++s) {
    barrier();
    load(s);
    barrier();
    for (uint group = 0u; group < 4u; ++group) {
      add_group(group);
      const uint done = 4u * s + group + 1u, of_block = block_elements() / 16u;
      if (done % of_block != 0u || done > kBlocks * of_block) continue;
      const uint b = done / of_block - 1u;
      for (; b >= (chunk + 1u) * kBlocks / 8u; ++chunk) end_chunk(chunk);  // chunks that end before this block, empty ones too
      has_small = end_block(b) || has_small;
    }
  }
  for (; chunk < 8u; ++chunk) end_chunk(chunk);
  for (uint i = 0u; i < kOutputs; ++i) {
    const uint row = first_row + gl_LocalInvocationID.y + 8u * (i / kPer), token = first_token + gl_LocalInvocationID.x + 16u * (i % kPer);
    if (row >= product.n_rows || token >= push.n_tokens) continue;
    float y = has_small ? slow_product(row, token) : total[i];
    if (product.has_bias != 0u) y = add(y, product.bias.at[row]);
    product.y.at[token * product.n_rows + row] = y;
  }
}
