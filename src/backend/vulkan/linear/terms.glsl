// Terms of a product's blocks, and a whole output the slow way. x_words, x_sum and x_step are where the includer has its rows of x.
#ifndef ASSAY_TERMS_GLSL
#define ASSAY_TERMS_GLSL

// Integers of one or two planes as a float, and a block's term: multiples of 2^-31 from 2^-24 (halves) and 2^-7, never subnormal.
float joined(int high, int low) { return kPlanes == 2u ? fused_normal(0.0078125, float(low), float(high)) : float(high); }
float term_of(vec2 scales, ivec4 sum) {  // sum: dots of both planes, then minima's
  const float f = joined(sum.x, sum.y);
  return has_min() ? fused_normal(scales.x, f, mul_normal(scales.y, joined(sum.z, sum.w))) : mul_normal(scales.x, f);
}

// One output, whatever is subnormal: a row of weights by the row of x at `x`.
float slow_product_of(WeightRow weights, uint x) {
  const uint groups_of_block = block_elements() / 16u;
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
