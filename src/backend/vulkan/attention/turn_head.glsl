// A head ahead of attention: [norm,] rotation. Included once for each set of names (num/seen.glsl); the includer has `head` and the table of rotations.
#include "rows/inverse_root.glsl"

// The head that begins at x: into `head`, turned. w: of the norm, normed: what it gives, where there is one. By all invocations of the workgroup.
void turn_head(Floats x, uint begin, bool has_norm, float eps, Floats w, Floats normed, bool writes, uint position) {
  const uint thread = gl_LocalInvocationIndex, n_threads = gl_WorkGroupSize.x;
  for (uint j = thread; j < kDim; j += n_threads) head[j] = x.at[begin + j];
  barrier();
  if (has_norm) {
    const float r = inverse_root(eps);
    for (uint j = thread; j < kDim; j += n_threads) {
      head[j] = mul(mul(head[j], r), w.at[j]);
      if (writes) normed.at[begin + j] = head[j];
    }
    barrier();
  }
  const uint angles = position * kRotated;
  for (uint i = thread; i < kRotated / 2u; i += n_threads) {
    const uint a = kInterleaved != 0u ? 2u * i : i, b = kInterleaved != 0u ? 2u * i + 1u : i + kRotated / 2u;
    const float x_a = head[a], x_b = head[b], cosine = push.table.at[angles + i], sine = push.table.at[angles + kRotated / 2u + i];
    head[a] = fused(x_a, cosine, negated(mul(x_b, sine)));
    head[b] = fused(x_a, sine, mul(x_b, cosine));
  }
  barrier();
}
