#version 460
// Products of few tokens by teams of 32, 64 or 128 invocations (team.glsl), each with kRows rows. ASSAY_OPERATION: bit 0: the device's dot of bytes; bit 1: experts.
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
const bool kLoadsAhead = false;

#include "linear/products.glsl"

uint first_row, first_token;  // of the team
WeightRow team_row(uint r) { return matrix_row(first_token, first_row + r); }
uint team_x(uint t) { return x_row(first_token + t); }

#include "linear/team.glsl"

void main() {
  first_token = gl_WorkGroupID.y * kTokens;
  first_row = find_product(gl_WorkGroupSize.y * kRows) + gl_LocalInvocationID.y * kRows;
  find_chains();
  for (uint o = gl_LocalInvocationID.x; o < kRows * kTokens; o += gl_WorkGroupSize.x) {
    const uint row = first_row + o / kTokens, token = first_token + o % kTokens;
    if (row >= product.n_rows || token >= push.n_tokens) continue;
    float y = team_output(o);
    if (product.has_bias != 0u) y = add(y, product.bias.at[weight_row(token, row)]);
    product.y.at[token * product.n_rows + row] = y;
  }
}
