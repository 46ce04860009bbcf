// Elements of blocks of integers by the block's inverse step. What is lost here to subnormals is far below half of an integer.
#ifndef ASSAY_STEPS_GLSL
#define ASSAY_STEPS_GLSL

float clamped(float x, float limit) { return x > limit ? limit : -limit > x ? -limit : x; }  // of an integer: never subnormal
float rounded_small(float x) { return add_normal(add_normal(x, kRoundMagic), -kRoundMagic); }
float first_plane(float x, float inverse) { return clamped(rounded_small(mul_normal(x, inverse)), 127.0); }
float second_plane(float x, float inverse, float first) {
  return clamped(rounded_small(mul_normal(128.0, fused_normal(x, inverse, negated(first)))), 64.0);
}
uint quantised(float x, float inverse) { return uint(int(first_plane(x, inverse))) & 0xFFu; }

#endif
