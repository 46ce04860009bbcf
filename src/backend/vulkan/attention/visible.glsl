// Which positions a query sees (ops/attention/attention.h). The includer has FLAGS, WINDOW and CHUNK.
#ifndef ASSAY_VISIBLE_GLSL
#define ASSAY_VISIBLE_GLSL

const uint kCausal = 1u, kSink = 2u;  // flags

// The first and the last.
uvec2 visible(uint position, uint n_positions) {
  if ((FLAGS & kCausal) == 0u) {
    const uint reach = WINDOW / 2u;
    return uvec2(WINDOW > 0u && position > reach ? position - reach : 0u,
                 WINDOW > 0u && position + reach < n_positions ? position + reach : n_positions - 1u);
  }
  const uint in_window = WINDOW > 0u && position >= WINDOW ? position - WINDOW + 1u : 0u;
  return uvec2(max(in_window, CHUNK > 0u ? position / CHUNK * CHUNK : 0u), position);
}

#endif
