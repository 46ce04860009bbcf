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

// Of the groups of rows that an axis of the dispatch is for. Then the product at work, and the first row there of the group; each has so many.
uint row_group() { return gl_WorkGroupID.z * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
uint find_product(uint group, uint rows_together) {
  uint first = group * rows_together;
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

// Integers of one or two planes as a float, and a block's term: multiples of 2^-31 from 2^-24 (halves) and 2^-7, never subnormal.
float joined(float high, float low) { return kPlanes == 2u ? fused_normal(0.0078125, low, high) : high; }
float term_of(vec2 scales, vec4 sum) {  // sum: dots of both planes, then minima's
  const float f = joined(sum.x, sum.y);
  return has_min() ? fused_normal(scales.x, f, mul_normal(scales.y, joined(sum.z, sum.w))) : mul_normal(scales.x, f);
}

// One output, whatever is subnormal.
float slow_product(uint row, uint token) {
  const uint groups_of_block = block_elements() / 16u, x = x_row(token);
  WeightRow weights = matrix_row(token, row);
  float c[8];
  for (uint chunk = 0u; chunk < 8u; ++chunk) {
    c[chunk] = 0.0;
    for (uint b = chunk * kBlocks / 8u; b < (chunk + 1u) * kBlocks / 8u; ++b) {
      ivec4 sum = ivec4(0);
      for (uint g = 0u; g < groups_of_block; ++g) {
        const uint at = b * groups_of_block + g;
        const uvec4 w = group_bytes(weights, b, g);
        const ivec2 scales = group_scales(weights, b, g);
        sum.x += scales.x * dot_of(w, x_words(x, 0u, at));
        sum.z += scales.y * x_sum(x, 0u, at);
        if (kPlanes == 2u) {
          sum.y += scales.x * dot_of(w, x_words(x, 1u, at));
          sum.w += scales.y * x_sum(x, 1u, at);
        }
      }
      c[chunk] = fused(x_step(x, b), term_of(block_scales(weights, b), sum), c[chunk]);
    }
  }
  for (uint width = 1u; width < 8u; width *= 2u) {
    for (uint i = 0u; i < 8u; i += 2u * width) c[i] = add(c[i], c[i + width]);
  }
  return c[0];
}

#endif
