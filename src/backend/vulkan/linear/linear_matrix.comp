#version 460
// Products of many tokens by cooperative matrices (linear/cooperative.glsl): superblocks, 64 elements of a row at a time. ASSAY_OPERATION: bit 2: the device's
// own matrices, else loops in their place, for tests: then of 4 subgroups, and 64 rows.
//
//   workgroup of 8 subgroups            128 rows by 32 kColumnFragments columns; a column is a plane of a token
//   subgroup s                          rows 32 (s / 2) .., half of the columns: s % 2; of two planes the first, then the second of the same tokens
//   shared memory                       two stages: one is multiplied while the next is on its way, so a stage has one barrier
//
//   Q4_K, Q5_K    bytes of weights; dots of 32, each times its scale                     --> sums of a superblock
//   Q6_K          a weight times its scale is 128 high + low, two bytes: two chains      --> sums of a superblock
//   minima        times sums of activations, which are 64 high + low                     --> sums of a superblock --> terms, chains, the tree
//
// Sums that the tree keeps waiting, three at most, lie in memory of the invocation: that array is indexed by what only the running program knows.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#if (ASSAY_OPERATION & 4) != 0
#pragma use_vulkan_memory_model
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_NV_cooperative_matrix : require
#extension GL_NV_integer_cooperative_matrix : require
#endif
#include "num/num.glsl"
#include "num/memory.glsl"
#include "linear/formats.glsl"
#include "linear/twin.glsl"
#include "linear/dot.glsl"
#include "linear/experts.glsl"

#if (ASSAY_OPERATION & 4) != 0
const uint kThreads = 256u;
layout(local_size_x = 256) in;
#else
const uint kThreads = 128u;  // as much shared memory as processors have that compute as a GPU would
layout(local_size_x = 128) in;
#endif
layout(constant_id = 11) const uint kColumnFragments = 2u;  // of a subgroup
layout(constant_id = 12) const uint kPlanes = 1u;
layout(constant_id = 13) const uint kFragments = 4u;  // kRowFragments * kColumnFragments
layout(constant_id = 14) const uint kWaiting = 96u;   // 3 sums of each of an invocation's outputs
layout(constant_id = 15) const uint kBlocks = 8u;     // of a row

#include "linear/products.glsl"
#define ASSAY_DEPTH_CONSTANT 16
#include "linear/cooperative.glsl"

const uint kRowFragments = 2u, kRows = kThreads / 2u, kColumns = 32u * kColumnFragments, kTokens = kColumns / kPlanes;
const uint kSteps = 32u / kDepth;  // of a dot of 32
const uint kTokenFragments = kColumnFragments / kPlanes;  // of a subgroup
const bool kIsTwoBytes = kFormat == kQ6_K;
const uint kWeightStride = kIsTwoBytes ? 9u : 5u, kStride = 5u;  // of a row's stage, a column's: 16 bytes more, so that rows lie in other banks
const uint kOutStride = 5u;

shared uvec4 w_stage[2u * kRows * kWeightStride], x_stage[2u * kColumns * kStride];
shared int w_scales[kIsTwoBytes ? 1u : 4u * kRows];          // of two stages, two dots each
shared uvec4 w_mins[kIsTwoBytes ? 1u : kRows + 1u];          // two bytes of each word, as the sums of activations; what lies behind a row meets zeros
shared uvec4 x_sums[kIsTwoBytes ? 1u : 2u * 2u * kColumns];  // the low digits of all columns, then the high ones; half of each is zero
shared float w_d[kRows], w_m[kRows], x_d[kTokens];
shared uint is_slow[kTokens];  // a step so small that a chain may be subnormal

uint first_row, first_token;
// On their way from memory: of one row and side, and of one group of each column of a stage.
uvec4 w_low, w_high, w_head, x_words_next[kColumnFragments / (kThreads / 128u)];
ivec4 x_sums_next[kColumnFragments / (kThreads / 128u)];
float x_d_next;

Sums sums[kFragments], highs[kFragments];
Reals chains[kFragments];
float waiting[kWaiting];

// Of column c of the tile: its token there, and its plane.
uint token_of(uint c) {
  const uint each = 16u * kTokenFragments;
  return c / (16u * kColumnFragments) * each + c % each;
}
uint plane_of(uint c) { return kPlanes == 1u ? 0u : c / (16u * kTokenFragments) & 1u; }

void fetch(uint s) {
  const uint k = kBlocks * 256u, b = s / 4u, quarter = s & 3u, side = gl_LocalInvocationIndex & 1u;
  WeightRow row = matrix_row(0u, first_row + gl_LocalInvocationIndex / 2u);
  if (kFormat == kQ6_K) {
    const uint half_at = quarter >> 1, part = quarter & 1u;
    w_low = wide(row, kQ6KLowBytes * b + 64u * half_at + 16u * part + 32u * side);
    w_high = wide(row, kQ6KHigh * row.n + kQ6KHighBytes * b + 32u * half_at + 16u * part);
    const uint scales_at = kQ6KScales * row.n + kQ6KScalesBytes * b + 8u * half_at;
    w_head = uvec4(word_at(row, scales_at), word_at(row, scales_at + 4u), quarter == 3u ? memory_half(row.w, row.begin + kQ6KFactor * row.n + kScaleBytes * b) : 0u, 0u);
  } else {
    const uint at = (kFormat == kQ4_K ? kQ4KBytes : kQ5KBytes) * b;
    w_head = wide(row, at);
    w_low = wide(row, at + (kFormat == kQ4_K ? kQ4KLow : kQ5KLow) + 32u * quarter + 16u * side);
    if (kFormat == kQ5_K) w_high = wide(row, at + kQ5KHigh + 16u * side);
  }
  UNROLL for (uint i = 0u; i < kColumnFragments / (kThreads / 128u); ++i) {
    const uint c = gl_LocalInvocationIndex / 4u + kThreads / 4u * i, group = gl_LocalInvocationIndex & 3u, x = x_row(first_token + token_of(c));
    x_words_next[i] = x_words(x, plane_of(c), 16u * b + group_of(quarter, group));
    if (has_min() && quarter == 3u) {
      for (uint j = 0u; j < 4u; ++j) x_sums_next[i][j] = x_sum(x, plane_of(c), 16u * b + 4u * group + j);
    }
  }
  if (quarter == 3u && gl_LocalInvocationIndex < kTokens) x_d_next = x_step(x_row(first_token + gl_LocalInvocationIndex), b);
}

// Four bytes from 0 to 63, less 32, times a scale: 128 high + low, low from 0 to 127. Two at once, 2^15 more than they are.
uvec2 two_digits(uint bytes, int scale) {
  const uint start = uint(32768 - 32 * scale) * 0x10001u;
  const uint even = (bytes & 0x00FF00FFu) * uint(scale) + start, odd = ((bytes >> 8) & 0x00FF00FFu) * uint(scale) + start;
  return uvec2((even & 0x007F007Fu) | ((odd & 0x007F007Fu) << 8), ((even >> 7) & 0x00FF00FFu) | (((odd >> 7) & 0x00FF00FFu) << 8));
}

void keep_weights(uint s) {
  const uint quarter = s & 3u, row = gl_LocalInvocationIndex / 2u, side = gl_LocalInvocationIndex & 1u;
  const uint to = ((s & 1u) * kRows + row) * kWeightStride + side;
  UNROLL for (uint upper = 0u; upper < 2u; ++upper) {  // groups side and side + 2 of the stage
    uvec4 bytes = (w_low >> (4u * upper)) & 0x0F0F0F0Fu;
    if (kFormat == kQ5_K) bytes |= ((w_high >> (2u * quarter + upper)) & 0x01010101u) << 4;
    if (kIsTwoBytes) {
      bytes |= ((w_high >> (2u * (side + 2u * upper))) & 0x03030303u) << 4;
      const int scale = bitfieldExtract(int(w_head[upper] >> (8u * ((quarter & 1u) + 2u * side))), 0, 8);
      uvec4 high;
      UNROLL for (uint j = 0u; j < 4u; ++j) {
        const uvec2 digits = two_digits(bytes[j], scale);
        bytes[j] = digits.x;
        high[j] = digits.y;
      }
      w_stage[to + 2u * upper + 4u] = high;
    }
    w_stage[to + 2u * upper] = bytes;
  }
  if (!kIsTwoBytes) w_scales[(2u * (s & 1u) + side) * kRows + row] = scales_of_head(w_head, 4u * quarter + 2u * side).x;
  if (quarter != 3u || side != 0u) return;
  if (kIsTwoBytes) {
    w_d[row] = half_to_float(w_head.z);
    return;
  }
  const vec2 d = halves_to_floats(w_head.x);
  w_d[row] = d.x;
  w_m[row] = negated(d.y);
  const uint first = w_head.z & 0x3F3F3F3Fu, second = ((w_head.w >> 4) & 0x0F0F0F0Fu) | ((w_head.z >> 2) & 0x30303030u);
  w_mins[row] = uvec4(first & 0xFFFFu, first >> 16, second & 0xFFFFu, second >> 16);
}

void keep(uint s) {
  keep_weights(s);
  UNROLL for (uint i = 0u; i < kColumnFragments / (kThreads / 128u); ++i) {
    const uint c = gl_LocalInvocationIndex / 4u + kThreads / 4u * i, group = gl_LocalInvocationIndex & 3u;
    x_stage[((s & 1u) * kColumns + c) * kStride + group] = x_words_next[i];
    if (!has_min() || (s & 3u) != 3u) continue;
    const int first = x_sums_next[i].x + x_sums_next[i].y, second = x_sums_next[i].z + x_sums_next[i].w;
    const int first_high = (first + 32) >> 6, second_high = (second + 32) >> 6;
    x_sums[2u * c][group] = (uint(first - 64 * first_high) & 0xFFu) | ((uint(second - 64 * second_high) & 0xFFu) << 8);
    x_sums[2u * (kColumns + c)][group] = (uint(first_high) & 0xFFu) | ((uint(second_high) & 0xFFu) << 8);
  }
  if ((s & 3u) != 3u || gl_LocalInvocationIndex >= kTokens) return;
  x_d[gl_LocalInvocationIndex] = x_d_next;
  if (is_small(x_d_next, -72)) is_slow[gl_LocalInvocationIndex] = 1u;
}

uint own_rows() { return 32u * (subgroup_id() / 2u); }
uint own_columns() { return 16u * kColumnFragments * (subgroup_id() & 1u); }

void multiply(uint stage) {
  UNROLL for (uint part = 0u; part < 2u; ++part) {
    Right x[kColumnFragments * kSteps];
    UNROLL for (uint i = 0u; i < kColumnFragments * kSteps; ++i) {
      load_right(x[i], x_stage, (stage * kColumns + own_columns() + 16u * (i / kSteps)) * kStride + 2u * part + i % kSteps, kStride);
    }
    UNROLL for (uint f = 0u; f < kRowFragments; ++f) {
      const uint row = own_rows() + 16u * f, first = f * kColumnFragments;
      Left w[kSteps];
      UNROLL for (uint step = 0u; step < kSteps; ++step) load_left(w[step], w_stage, (stage * kRows + row) * kWeightStride + 2u * part + step, kWeightStride);
      if (kIsTwoBytes) {
        Left high;
        UNROLL for (uint step = 0u; step < kSteps; ++step) {
          load_left(high, w_stage, (stage * kRows + row) * kWeightStride + 2u * part + step + 4u, kWeightStride);
          UNROLL for (uint g = 0u; g < kColumnFragments; ++g) {
            sums[first + g] = multiply_add(w[step], x[g * kSteps + step], sums[first + g]);
            highs[first + g] = multiply_add(high, x[g * kSteps + step], highs[first + g]);
          }
        }
        continue;
      }
      Sums scale;
      load_of_rows(scale, w_scales, (2u * stage + part) * kRows + row);
      UNROLL for (uint g = 0u; g < kColumnFragments; ++g) {
        Sums dots = no_sums();
        UNROLL for (uint step = 0u; step < kSteps; ++step) dots = multiply_add(w[step], x[g * kSteps + step], dots);
        UNROLL for (uint i = 0u; i < n_elements(dots); ++i) element(sums[first + g], i) += element(scale, i) * element(dots, i);
      }
    }
  }
}

// The integers of fragment o of the superblock, and of its minima.
Reals dots_of(uint o) {
  if (kIsTwoBytes) {
    UNROLL for (uint i = 0u; i < n_elements(sums[o]); ++i) element(sums[o], i) += 128 * element(highs[o], i);
    highs[o] = no_sums();
  }
  const Reals y = reals_of(sums[o]);
  sums[o] = no_sums();
  return y;
}
Reals mins_of(uint row, uint column) {
  Left mins;
  Right low, high;
  load_left(mins, w_mins, row, 1u);
  load_right(low, x_sums, 2u * column, 2u);
  load_right(high, x_sums, 2u * (kColumns + column), 2u);
  Sums y = multiply_add(mins, low, no_sums());
  const Sums of_high = multiply_add(mins, high, no_sums());
  UNROLL for (uint i = 0u; i < n_elements(y); ++i) element(y, i) += 64 * element(of_high, i);
  return reals_of(y);
}

// A superblock ends: terms of its integers into the chains.
void end_block() {
  UNROLL for (uint f = 0u; f < kRowFragments; ++f) {
    const uint row = own_rows() + 16u * f;
    Reals d, m = no_reals();
    load_of_rows(d, w_d, row);
    if (has_min()) load_of_rows(m, w_m, row);
    UNROLL for (uint g = 0u; g < kTokenFragments; ++g) {
      const uint o = f * kColumnFragments + g, column = own_columns() + 16u * g;
      Reals step, high = dots_of(o), low = no_reals(), min_high = no_reals(), min_low = no_reals();
      load_of_columns(step, x_d, token_of(column));
      if (kPlanes == 2u) low = dots_of(o + kTokenFragments);
      if (has_min()) min_high = mins_of(row, column);
      if (has_min() && kPlanes == 2u) min_low = mins_of(row, column + 16u * kTokenFragments);
      UNROLL for (uint i = 0u; i < n_elements(step); ++i) {
        const vec4 sum = vec4(element(high, i), element(low, i), element(min_high, i), element(min_low, i));
        element(chains[o], i) = fused_normal(element(step, i), term_of(vec2(element(d, i), element(m, i)), sum), element(chains[o], i));
      }
    }
  }
}

// Ends chunk `chunk`: ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7)). After the last one the chains are the sums of all. Level by level, each of all outputs:
// so their loads are on their way together.
void end_chunk(uint chunk) {
  const uint n_ones = findLSB(~chunk), n = kWaiting / 3u;  // n_ones: sums of 1, 2, 4 chunks that end with it
  [[dont_unroll]] for (uint level = 0u; level < n_ones; ++level) {
    UNROLL for (uint f = 0u; f < kRowFragments; ++f) {
      UNROLL for (uint g = 0u; g < kTokenFragments; ++g) {
        const uint o = f * kColumnFragments + g, at = level * n + (f * kTokenFragments + g) * n_elements(chains[o]);
        UNROLL for (uint i = 0u; i < n_elements(chains[o]); ++i) element(chains[o], i) = add_normal(waiting[at + i], element(chains[o], i));
      }
    }
  }
  if (chunk == 7u) return;
  UNROLL for (uint f = 0u; f < kRowFragments; ++f) {
    UNROLL for (uint g = 0u; g < kTokenFragments; ++g) {
      const uint o = f * kColumnFragments + g, at = n_ones * n + (f * kTokenFragments + g) * n_elements(chains[o]);
      UNROLL for (uint i = 0u; i < n_elements(chains[o]); ++i) waiting[at + i] = element(chains[o], i);
      chains[o] = no_reals();
    }
  }
}

void write_outputs() {
  const uint place = subgroup_id() * 16u * kOutStride, lane = gl_LocalInvocationIndex & 31u;
  UNROLL for (uint f = 0u; f < kRowFragments; ++f) {
    UNROLL for (uint g = 0u; g < kTokenFragments; ++g) {
      barrier();
      store_columns(chains[f * kColumnFragments + g], w_stage, place, kOutStride);
      barrier();
      const uint row_there = lane & 15u, row = first_row + own_rows() + 16u * f + row_there;
      for (uint i = lane / 16u; i < 16u; i += 2u) {
        const uint in_tile = token_of(own_columns() + 16u * g) + i, token = first_token + in_tile;
        if (row >= product.n_rows || token >= push.n_tokens || is_slow[in_tile] != 0u) continue;
        float y = uintBitsToFloat(w_stage[place + i * kOutStride + row_there / 4u][row_there & 3u]);
        if (product.has_bias != 0u) y = add(y, product.bias.at[row]);
        product.y.at[token * product.n_rows + row] = y;
      }
    }
  }
}

// Tokens with a step too small, whatever is subnormal.
void write_slow_tokens() {
  const uint row = first_row + gl_LocalInvocationIndex;
  if (gl_LocalInvocationIndex >= kRows || row >= product.n_rows) return;
  for (uint i = 0u; i < kTokens; ++i) {
    if (is_slow[i] == 0u || first_token + i >= push.n_tokens) continue;
    float y = slow_product(row, first_token + i);
    if (product.has_bias != 0u) y = add(y, product.bias.at[row]);
    product.y.at[(first_token + i) * product.n_rows + row] = y;
  }
}

void main() {
  // Tokens first: their activations are in caches, and each row's weights are read once.
  const uint group = (gl_WorkGroupID.z * gl_NumWorkGroups.x + gl_WorkGroupID.x) + gl_WorkGroupID.y * gl_NumWorkGroups.x * gl_NumWorkGroups.z;
  first_token = group % gl_NumWorkGroups.y * kTokens;
  first_row = find_product(group / gl_NumWorkGroups.y, kRows);
  for (uint i = gl_LocalInvocationIndex; i < kTokens; i += kThreads) is_slow[i] = 0u;
  if (has_min()) {
    for (uint i = gl_LocalInvocationIndex; i < 2u * kColumns; i += kThreads) x_sums[2u * i + 1u] = uvec4(0u);
  }
  UNROLL for (uint o = 0u; o < kFragments; ++o) {
    sums[o] = no_sums();
    highs[o] = no_sums();
    chains[o] = no_reals();
  }
  const uint n_stages = 4u * kBlocks;
  uint chunk = 0u;
  barrier();
  fetch(0u);
  keep(0u);
  barrier();
  for (uint s = 0u;; ++s) {
    if ((s & 3u) == 0u) {
      for (; chunk < 8u && s / 4u >= (chunk + 1u) * kBlocks / 8u; ++chunk) end_chunk(chunk);  // chunks that end before this block, empty ones too
    }
    if (s == n_stages) break;
    if (s + 1u < n_stages) fetch(s + 1u);
    multiply(s & 1u);
    if ((s & 3u) == 3u) end_block();
    if (s + 1u < n_stages) keep(s + 1u);
    barrier();
  }
  write_outputs();
  write_slow_tokens();
}
