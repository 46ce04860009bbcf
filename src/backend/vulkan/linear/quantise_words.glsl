// See quantise.glsl. Included once for each set of names (num/seen.glsl).

// Elements first .. first + 3 of a row of k, whose twin begins at that word; beyond the row's end: nothing. By all invocations together.
void quantise_words(vec4 x, uint first, uint k, Words twin, uint begin) {
  const uint thread = gl_LocalInvocationIndex;
  const bool is_there = first < k;
  barrier();  // those before have read what is shared
  if (thread < 128u) sums_q[thread] = sums_l[thread] = 0;
  if (thread < 64u) largest[thread] = 0u;
  barrier();
  const uint block = 4u * thread / max(kBlock, 1u);
  if (is_there) atomicMax(largest[block], max(max(magnitude_of(x[0]), magnitude_of(x[1])), max(magnitude_of(x[2]), magnitude_of(x[3]))));
  barrier();
  const vec2 steps = is_there ? block_steps(largest[block]) : vec2(0.0);
  uint word_q = 0u, word_l = 0u;
  int sum_q = 0, sum_l = 0;
  for (uint j = 0u; steps.y != 0.0 && j < 4u; ++j) {
    const float high = first_plane(x[j], steps.y);
    word_q |= (uint(int(high)) & 0xFFu) << (8u * j);
    sum_q += int(high);
    if (kPlanes == 2u) {
      const int low = int(second_plane(x[j], steps.y, high));
      word_l |= (uint(low) & 0xFFu) << (8u * j);
      sum_l += low;
    }
  }
  if (is_there) {
    twin.at[begin + first / 4u] = word_q;
    if (kPlanes == 2u) twin.at[begin + twin_l(k) + first / 4u] = word_l;
    if (first % max(kBlock, 1u) == 0u) twin.at[begin + twin_d(k, kPlanes) + first / max(kBlock, 1u)] = floatBitsToUint(steps.x);
    atomicAdd(sums_q[thread / 4u], sum_q);
    if (kPlanes == 2u) atomicAdd(sums_l[thread / 4u], sum_l);
  }
  barrier();
  if (is_there && thread % 4u == 0u) {
    const uint at = twin_sums(k, kPlanes, max(kBlock, 1u)) + first / 16u;
    twin.at[begin + at] = uint(sums_q[thread / 4u]);
    if (kPlanes == 2u) twin.at[begin + at + k / 16u] = uint(sums_l[thread / 4u]);
  }
}
