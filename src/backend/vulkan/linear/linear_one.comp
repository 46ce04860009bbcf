#version 460
// Products of one token together with what stands ahead of them and behind them: a step less is a wait less. By teams (team.glsl); ASSAY_OPERATION: bit 0: the
// device's dot of bytes.
//
//   kOwn 1: floats of x -> twin in shared memory, by each workgroup for itself, which then has several rows     kOwn 0: x is the twin
//   kGates 1: y2 = activation(y0) * y1 behind the products
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#if (ASSAY_OPERATION & 1) != 0
#extension GL_EXT_spirv_intrinsics : require
#endif
#include "num/num.glsl"
#include "num/memory.glsl"
#include "num/seen.glsl"
#include "num/steps.glsl"
#include "linear/formats.glsl"
#include "linear/twin.glsl"
#include "linear/dot.glsl"

layout(local_size_x = 32, local_size_y = 8, local_size_x_id = 11, local_size_y_id = 13) in;
layout(constant_id = 12) const uint kPlanes = 2u;
layout(constant_id = 14) const uint kRows = 2u;        // of a team
layout(constant_id = 15) const uint kBlocks = 8u;      // of a row
layout(constant_id = 16) const uint kSegment = 8u;     // superblocks whose parts are kept at a time; others: 1
layout(constant_id = 17) const uint kTerms = 128u;     // of all teams
layout(constant_id = 18) const uint kParts = 512u;
layout(constant_id = 19) const uint kChains = 128u;
layout(constant_id = 20) const uint kOwn = 1u;
layout(constant_id = 21) const uint kGates = 0u;       // a team has rows of product 0, the gate, and of product 1 in turn
layout(constant_id = 22) const uint kActivation = 7u;
// With a twin of their own, else 1: fours of the row that an invocation has; groups of 16 elements of the row; the same where there is a second plane; blocks.
layout(constant_id = 23) const uint kHeld = 2u;
layout(constant_id = 24) const uint kRowGroups = 128u;
layout(constant_id = 25) const uint kLowGroups = 128u;
layout(constant_id = 26) const uint kSteps = 8u;
const bool kLoadsAhead = true;  // ahead of what has to be done for the twin
const uint kTokens = 1u, kHasBias = 1u;  // kHasBias: of flags, a bit for each product

layout(push_constant) uniform Push {
  Words x;
  Words w[3];        // of the products
  Floats bias[3], y[3];
  uint n_rows[3];    // 0: there is no such product
  uint flags;
} push;

shared uint largest[kSteps];
shared vec2 steps[kSteps];  // and what they are the inverse of
shared uvec4 q_words[kRowGroups], l_words[kLowGroups];
shared int q_sums[kRowGroups], l_sums[kLowGroups];

uvec4 x_words(uint x, uint plane, uint at) {
  if (kOwn != 0u) return plane == 0u ? q_words[at] : l_words[at];
  return Vectors(push.x).at[plane * twin_l(kBlocks * block_elements()) / 4u + at];
}
int x_sum(uint x, uint plane, uint at) {
  if (kOwn != 0u) return plane == 0u ? q_sums[at] : l_sums[at];
  const uint k = kBlocks * block_elements();
  return int(push.x.at[twin_sums(k, kPlanes, block_elements()) + plane * (k / 16u) + at]);
}
float x_step(uint x, uint b) {
  return kOwn != 0u ? steps[b].x : uintBitsToFloat(push.x.at[twin_d(kBlocks * block_elements(), kPlanes) + b]);
}
#include "linear/terms.glsl"

uint i_product, first_row;  // of the team; with a gate its first of each
WeightRow team_row(uint r) {
  const uint i = kGates != 0u ? r & 1u : i_product, at = first_row + (kGates != 0u ? r / 2u : r);
  return WeightRow(push.w[i], min(at, push.n_rows[i] - 1u) * row_bytes_of(kBlocks), kBlocks);
}
uint team_x(uint t) { return 0u; }
#include "linear/team.glsl"

#include "num/seen_names.glsl"
#include "linear/own_twin.glsl"
#include "rows/activated.glsl"
#include "num/plain_names.glsl"
#include "linear/own_twin.glsl"
#include "rows/activated.glsl"

// The product and the rows of it that a group of rows has, of all groups.
void find_rows(uint group) {
  i_product = 0u;
  const uint together = gl_WorkGroupSize.y * (kGates != 0u ? kRows / 2u : kRows);
  uint first = group * together;
  for (uint i = 1u; kGates == 0u && i < 3u; ++i) {
    const uint n = (push.n_rows[i - 1u] + together - 1u) / together * together;
    if (first < n || push.n_rows[i] == 0u) break;
    first -= n;
    i_product = i;
  }
  first_row = first + gl_LocalInvocationID.y * (kGates != 0u ? kRows / 2u : kRows);
}

void load_first() {
  if (of_superblocks() && gl_LocalInvocationID.x < 4u * kBlocks) load_quarters(gl_LocalInvocationID.x / 4u, gl_LocalInvocationID.x & 3u);
}

float with_bias(uint i, uint at, float y) { return (push.flags & (kHasBias << i)) != 0u ? add(y, push.bias[i].at[at]) : y; }

void write_output(uint o) {
  const uint at = first_row + o;
  if (at < push.n_rows[i_product]) push.y[i_product].at[at] = with_bias(i_product, at, team_output(o));
}

// Rows o / 2 of gate and product.
void write_gated(uint o) {
  const uint at = first_row + o;
  if (at >= push.n_rows[0]) return;
  const float gate = with_bias(0u, at, team_output(2u * o)), up = with_bias(1u, at, team_output(2u * o + 1u));
  push.y[0].at[at] = gate;
  push.y[1].at[at] = up;
  is_risky = false;
  const float gated = mul_seen(activated_seen(gate), up);
  push.y[2].at[at] = is_risky ? mul(activated(gate), up) : gated;
}

void main() {
  find_rows(gl_WorkGroupID.x);
  load_first();
  if (kOwn != 0u) {
    own_twin_seen();
    if (has_risky()) own_twin();
  }
  uint n_groups = 0u;
  const uint together = gl_WorkGroupSize.y * (kGates != 0u ? kRows / 2u : kRows);
  for (uint i = 0u; i < (kGates != 0u ? 1u : 3u); ++i) n_groups += (push.n_rows[i] + together - 1u) / together;
  for (uint group = gl_WorkGroupID.x; group < n_groups; group += gl_NumWorkGroups.x) {
    if (group != gl_WorkGroupID.x) {
      find_rows(group);
      load_first();
    }
    find_chains();
    for (uint o = gl_LocalInvocationID.x; o < (kGates != 0u ? kRows / 2u : kRows); o += gl_WorkGroupSize.x) {
      if (kGates != 0u) {
        write_gated(o);
      } else {
        write_output(o);
      }
    }
  }
}
