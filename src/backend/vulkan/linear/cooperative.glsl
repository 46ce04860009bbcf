// Matrices that a subgroup of 32 holds together, in pieces of 16 x 16 outputs: by the device's own (ASSAY_OPERATION bit 2: VK_NV_cooperative_matrix), or by
// plain loops with the same names, for tests on devices that have none. Products are exact: signed bytes, sums of 32 bits.
//
//   Left   16 rows x kDepth bytes, each row one or two of an array of uvec4      Sums   16 x 16 integers      Reals   16 x 16 floats
//   Right  kDepth bytes x 16 columns, each column likewise
//
// Which invocation holds which element nobody says, but it is the same for all Sums and all Reals: what belongs to a row or to a column is loaded as a matrix
// too, repeated, and element by element they meet.
#ifndef ASSAY_COOPERATIVE_GLSL
#define ASSAY_COOPERATIVE_GLSL

layout(constant_id = ASSAY_DEPTH_CONSTANT) const uint kDepth = 32u;  // 16 or 32

#if (ASSAY_OPERATION & 4) != 0
#define UNROLL [[unroll]]  // elements have no other index than a constant
#define Left icoopmatNV<8, gl_ScopeSubgroup, 16, kDepth>
#define Right icoopmatNV<8, gl_ScopeSubgroup, kDepth, 16>
#define Sums icoopmatNV<32, gl_ScopeSubgroup, 16, 16>
#define Reals fcoopmatNV<32, gl_ScopeSubgroup, 16, 16>

#define load_left(m, array, first, stride) coopMatLoadNV(m, array, first, stride, false)
#define load_right(m, array, first, stride) coopMatLoadNV(m, array, first, stride, true)
#define load_of_rows(m, array, first) coopMatLoadNV(m, array, first, 0u, true)
#define load_of_columns(m, array, first) coopMatLoadNV(m, array, first, 0u, false)
#define store_columns(m, array, first, stride) coopMatStoreNV(m, array, first, stride, true)
#define multiply_add(a, b, c) coopMatMulAddNV(a, b, c)
#define n_elements(m) m.length()
#define element(m, i) m[i]
#define no_sums() Sums(0)
#define no_reals() Reals(0.0)
#define reals_of(sums) Reals(sums)
uint subgroup_id() { return gl_SubgroupID; }

#else
#define UNROLL [[dont_unroll]]  // a processor's compiler has less to do
// Invocation i of 32: row i / 2, columns 8 (i % 2) ..
struct Left { uvec4 row[2]; };
struct Right { uvec4 column[8][2]; };
struct Sums { int at[8]; };
struct Reals { float at[8]; };
uint subgroup_id() { return gl_LocalInvocationIndex / 32u; }
uint own_row() { return (gl_LocalInvocationIndex & 31u) / 2u; }
uint own_column(uint i) { return 8u * (gl_LocalInvocationIndex & 1u) + i; }

#define load_left(m, array, first, stride) { for (uint h_ = 0u; h_ < kDepth / 16u; ++h_) m.row[h_] = array[(first) + own_row() * (stride) + h_]; }
#define load_right(m, array, first, stride) { for (uint h_ = 0u; h_ < 8u; ++h_) { for (uint j_ = 0u; j_ < kDepth / 16u; ++j_) m.column[h_][j_] = array[(first) + own_column(h_) * (stride) + j_]; } }
#define load_of_rows(m, array, first) { for (uint h_ = 0u; h_ < 8u; ++h_) m.at[h_] = array[(first) + own_row()]; }
#define load_of_columns(m, array, first) { for (uint h_ = 0u; h_ < 8u; ++h_) m.at[h_] = array[(first) + own_column(h_)]; }
#define store_columns(m, array, first, stride) { for (uint h_ = 0u; h_ < 8u; ++h_) array[(first) + own_column(h_) * (stride) + own_row() / 4u][own_row() & 3u] = floatBitsToUint(m.at[h_]); }
#define n_elements(m) 8u
#define element(m, i) m.at[i]
Sums multiply_add(Left a, Right b, Sums c) {
  for (uint i = 0u; i < 8u; ++i) c.at[i] += dot_of(a.row[0], b.column[i][0]) + (kDepth == 32u ? dot_of(a.row[1], b.column[i][1]) : 0);
  return c;
}
Sums no_sums() { return Sums(int[](0, 0, 0, 0, 0, 0, 0, 0)); }
Reals no_reals() { return Reals(float[](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)); }
Reals reals_of(Sums sums) {
  Reals y;
  for (uint i = 0u; i < 8u; ++i) y.at[i] = float(sums.at[i]);
  return y;
}
#endif

#endif
