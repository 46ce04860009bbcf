#version 460
// A value's twin alone, or the twin of a gate with the gate (ops/rows/gate.h): ASSAY_OPERATION 0 or 1. A workgroup has 1024 elements of a row.
//
//   storage x, up --> registers, 4 neighbours an invocation: gate --> y
//                 --> shared: largest of each block --> registers: integers --> shared: sums of groups --> twin
#extension GL_EXT_buffer_reference : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "num/seen.glsl"
#include "linear/quantise.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 12) const uint kActivation = 0u;

layout(push_constant) uniform Push {
  Floats x, up, y;  // x: the rows, or what goes through the activation
  Words twin;
  uint k;
} push;

#include "num/seen_names.glsl"
#include "linear/make_words.glsl"
#include "num/plain_names.glsl"
#include "linear/make_words.glsl"

void main() {
  make_words_seen();
  if (has_risky()) make_words();
}
