#version 460
// A row by its root mean square, with what stands ahead of it and the twin of what comes out (lower::FusionGroup, kind norm):
//
//   [b = rms_norm(b or a)]  ->  [x = a + b]  ->  y = rms_norm(x)  ->  [twin of y]
//
// A workgroup has a row. Sums are Lanes32 (ops/rows/rms_norm.h): its first 32 invocations.
//
//   storage a, b, w --> registers: invocation i has elements i, i + n, .. --> shared `row` --> shared `lanes`: the sum
//   shared `row` --> y; then, 4 neighbours an invocation, integers --> twin
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "num/seen.glsl"
#include "linear/quantise.glsl"

layout(local_size_x = 256, local_size_x_id = 15) in;  // 256 or 512
layout(constant_id = 12) const uint kWidth = 256u;
layout(constant_id = 13) const uint kAdds = 0u;   // 1: x = a + b, else x is a
layout(constant_id = 14) const uint kFirst = 0u;  // 1: a is normalised before that, 2: b
layout(constant_id = 16) const uint kHeld = 1u;   // elements of a row that an invocation has

layout(push_constant) uniform Push {
  Floats a, b, first_w, w, first_y, x, y;  // first_: of the norm ahead
  Words twin;
  float first_eps, eps;
} push;

shared float row[kWidth];
shared float lanes[32];
shared uint row_has_small;
#define ASSAY_ROW row
#define ASSAY_ROW_WIDTH kWidth

#include "num/seen_names.glsl"
#include "rows/norm_row.glsl"
#include "num/plain_names.glsl"
#include "rows/norm_row.glsl"

void main() {
  norm_row_seen();
  if (has_risky()) norm_row();
}
