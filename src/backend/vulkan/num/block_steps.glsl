// Steps of blocks of integers: activations A32 and A256 (quant/activations.h), and q8_0 of the cache. Included once for each set of names (num/seen.glsl).

// d and its inverse for a block whose largest magnitude has these bits.
vec2 block_steps(uint most) {
  if (most >= kInfinity) return vec2(uintBitsToFloat(kNaN), 0.0);
  if (most < 0x0D800000u) return vec2(0.0);  // 2^-100
  const float amax = uintBitsToFloat(most), inverse = uintBitsToFloat(0x3C010204u);  // 1 / 127
  const float near = mul(amax, inverse);
  return vec2(fused(fused(negated(near), 127.0, amax), inverse, near), quotient(127.0, amax));
}
