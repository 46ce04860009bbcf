// 1 / root(mean of squares + eps) of a row in shared memory, as Lanes32 has it (ops/rows/rms_norm.h). Included once for each set of names (num/seen.glsl), where
// ASSAY_ROW is the row, ASSAY_ROW_WIDTH how long it is, and `lanes` and `row_has_small` are shared. By all invocations of the workgroup, which have written the row;
// 32 or more. Below 2^-63 a square may be subnormal, and sums of squares only grow.
float inverse_root(float eps) {
  const uint thread = gl_LocalInvocationIndex, n_threads = gl_WorkGroupSize.x * gl_WorkGroupSize.y;
  if (thread == 0u) row_has_small = 0u;
  barrier();
  for (uint j = thread; j < ASSAY_ROW_WIDTH; j += n_threads) {
    if (is_small(ASSAY_ROW[j], -63)) row_has_small = 1u;
  }
  barrier();
  if (thread < 32u) {
    float sum = 0.0;
    if (row_has_small == 0u) {
      uint j = thread;
      for (; j + 224u < ASSAY_ROW_WIDTH; j += 256u) {  // loads together, so that the chain waits once for eight
        float x[8];
        for (uint i = 0u; i < 8u; ++i) x[i] = ASSAY_ROW[j + 32u * i];
        for (uint i = 0u; i < 8u; ++i) sum = fused_normal(x[i], x[i], sum);
      }
      for (; j < ASSAY_ROW_WIDTH; j += 32u) sum = fused_normal(ASSAY_ROW[j], ASSAY_ROW[j], sum);
    } else {
      for (uint j = thread; j < ASSAY_ROW_WIDTH; j += 32u) sum = fused(ASSAY_ROW[j], ASSAY_ROW[j], sum);
    }
    lanes[thread] = sum;
  }
  for (uint width = 16u; width >= 1u; width /= 2u) {
    barrier();
    if (thread < width) lanes[thread] = add(lanes[thread], lanes[thread + width]);
  }
  barrier();
  return quotient(1.0, root(add(quotient(lanes[0], float(ASSAY_ROW_WIDTH)), eps)));
}
