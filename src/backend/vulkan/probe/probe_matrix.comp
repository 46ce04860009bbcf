#version 460
// What linear/linear_matrix.comp asks of cooperative matrices, by one subgroup with known bits (probe/probe.h): the dots of 16 rows and 16 columns of 32 bytes,
// each times its row's integer, as floats times their row's float, plus their column's.
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
#include "linear/dot.glsl"
#define ASSAY_DEPTH_CONSTANT 10
#include "linear/cooperative.glsl"

layout(local_size_x = 32) in;

layout(push_constant) uniform Push {
  Vectors bytes;  // of 16 rows, of 16 columns
  Ints scales;
  Floats factors, terms;
  Words y;  // column by column
} push;

const uint kStride = 3u, kOutStride = 5u;
shared uvec4 rows[16u * kStride], columns[16u * kStride], results[16u * kOutStride];
shared int scales[16];
shared float factors[16], terms[16];

void main() {
  const uint i = gl_LocalInvocationIndex;
  rows[i / 2u * kStride + (i & 1u)] = push.bytes.at[i];
  columns[i / 2u * kStride + (i & 1u)] = push.bytes.at[32u + i];
  if (i < 16u) {
    scales[i] = push.scales.at[i];
    factors[i] = push.factors.at[i];
    terms[i] = push.terms.at[i];
  }
  barrier();
  Left a;
  Right b;
  Sums scale;
  Reals factor, term;
  load_of_rows(scale, scales, 0u);
  load_of_rows(factor, factors, 0u);
  load_of_columns(term, terms, 0u);
  Sums dots = no_sums();
  UNROLL for (uint at = 0u; at < 2u; at += kDepth / 16u) {
    load_left(a, rows, at, kStride);
    load_right(b, columns, at, kStride);
    dots = multiply_add(a, b, dots);
  }
  UNROLL for (uint e = 0u; e < n_elements(dots); ++e) element(dots, e) *= element(scale, e);
  Reals y = reals_of(dots);
  UNROLL for (uint e = 0u; e < n_elements(y); ++e) element(y, e) = fused_normal(element(y, e), element(factor, e), element(term, e));
  store_columns(y, results, 0u, kOutStride);
  barrier();
  for (uint at = i; at < 256u; at += 32u) push.y.at[at] = results[at / 16u * kOutStride + at % 16u / 4u][at & 3u];
}
