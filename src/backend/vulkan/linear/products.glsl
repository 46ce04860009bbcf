// Up to three products of the same rows of x by matrices of one format (dot/1, ops/linear/linear.h), in one step: their workgroups lie one behind the other.
//
//   product 0: rows 0 .. | product 1: rows 0 .. | product 2     each from a workgroup of its own on
#ifndef ASSAY_PRODUCTS_GLSL
#define ASSAY_PRODUCTS_GLSL

struct Product {
  Words w;
  Floats bias, y;
  uint n_rows, has_bias;
};

layout(push_constant) uniform Push {
  Words x;  // twins
#if (ASSAY_OPERATION & 2) != 0
  Product product;
  Experts experts;  // a token is a pair
#else
  Product products[3];
#endif
  uint n_tokens, row_bytes;
} push;

// The product at work. Row `row` of its weights, beyond the end the last one; and the twin that a token's row of x is (in words).
Product product;
uint weight_row(uint token, uint row) {
#if (ASSAY_OPERATION & 2) != 0
  return weight_row_of(push.experts, token, row);
#else
  return row;
#endif
}
WeightRow matrix_row(uint token, uint row) {
  return WeightRow(product.w, weight_row(token, min(row, product.n_rows - 1u)) * push.row_bytes, kBlocks);
}
uint x_row(uint token) {
  const uint at = min(token, push.n_tokens - 1u);
#if (ASSAY_OPERATION & 2) != 0
  return x_row_of(push.experts, at) * twin_words(kBlocks * block_elements(), kPlanes, block_elements());
#else
  return at * twin_words(kBlocks * block_elements(), kPlanes, block_elements());
#endif
}

// Finds the product at work, and the workgroup's first row there; each workgroup has so many.
uint find_product(uint rows_together) {
  uint first = (gl_WorkGroupID.z * gl_NumWorkGroups.x + gl_WorkGroupID.x) * rows_together;
#if (ASSAY_OPERATION & 2) != 0
  product = push.product;
#else
  product = push.products[0];
  for (uint i = 1u; i < 3u; ++i) {
    const uint n = (product.n_rows + rows_together - 1u) / rows_together * rows_together;
    if (first < n || push.products[i].n_rows == 0u) break;
    first -= n;
    product = push.products[i];
  }
#endif
  return first;
}

// Of a row of x at word x: 16 integers of a plane, their sum, and the step of a block.
uvec4 x_words(uint x, uint plane, uint at) { return Vectors(push.x).at[(x + plane * twin_l(kBlocks * block_elements())) / 4u + at]; }
int x_sum(uint x, uint plane, uint at) {
  const uint k = kBlocks * block_elements();
  return int(push.x.at[x + twin_sums(k, kPlanes, block_elements()) + plane * (k / 16u) + at]);
}
float x_step(uint x, uint b) { return uintBitsToFloat(push.x.at[x + twin_d(kBlocks * block_elements(), kPlanes) + b]); }

#include "linear/terms.glsl"

// One output, whatever is subnormal.
float slow_product(uint row, uint token) { return slow_product_of(matrix_row(token, row), x_row(token)); }

#endif
