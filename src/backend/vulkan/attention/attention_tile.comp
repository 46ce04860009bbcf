#version 460
// Attention of many tokens (ops/attention/attention.h) by tiles: kQueries queries that share their keys, 1 << heads_log2 heads of each token, walk the segments of
// 256 positions together. What could meet a subnormal number, an infinity or a NaN is only noticed here: such queries are marked, and attention_4 computes them anew.
//
//   scores     an invocation has 8 queries by 8 keys: chains in registers, keys and queries pass through shared memory, 8 elements of all keys a stage
//   exp, sum   .. every fourth key of a query; scores and probabilities lie in shared memory, [key][query]
//   values     .. 4 queries by 4 elements of each 64: chains in registers; values pass through shared memory
//
//   storage   q, keys --> shared `query_stage`, `stage` --> registers: chains --> shared `scores` [key][query]
//             values  --> shared `stage`, with `scores` --> registers: chains, joined segment by segment --> y
//
// Probabilities are made 2^64 times as large, and so are their sums and the outputs, which changes no rounding where products and sums are 2^-126 or more, or
// multiples of 2^-149. Only probabilities below 2^-102 may make others: they carry a sign, and what they leave below 2^-126 is rounded as subnormal numbers are.
// Where segments are joined whose maxima are far apart, the smaller part must be too small to change the other, whatever becomes of it.
// All chains are named by constants and stand in main(): an array with an index that only the running program knows lies in memory.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "num/num.glsl"
#include "num/memory.glsl"
#include "attention/cache.glsl"
#include "num/steps.glsl"
#include "num/seen.glsl"

layout(constant_id = 10) const uint kTypeK = kCacheF16;
layout(constant_id = 11) const uint kTypeV = kCacheF16;
layout(constant_id = 12) const uint kQueries = 16u;
layout(constant_id = 13) const uint kThreads = 64u;  // 4 for each query
layout(constant_id = 14) const uint kDim = 64u;      // of keys and values: 64, 128 or 256
layout(local_size_x = 64, local_size_x_id = 13) in;

layout(push_constant) uniform Push {  // as attention.comp has it
  Floats q;
  Words k, v;
  Floats sinks, y;
  Ints positions, sequences, n_positions;
  uint n_heads, n_kv_heads, v_dim, v_row_dim, n_ctx, window, chunk, flags;
  float scale, cap;
  uint n_tokens, heads_log2;
  Words marks;  // of each tile: bits of queries
} push;
#define FLAGS push.flags
#define WINDOW push.window
#define CHUNK push.chunk
#include "attention/visible.glsl"

const uint kSegment = 256u, kStage = 512u;            // vectors of a stage
const uint kFours = kQueries / 4u, kEights = kQueries / 8u;
const uint kLoads = kSegment / kThreads;              // eights of a stage that an invocation brings
const uint kStageKeys = 4u * kStage / kDim;           // whose values are a stage
const uint kWhole = kDim / 4u;                        // vectors of a value
const uint kSmallScore = (127u - 70u) << 24, kSmallOutput = (127u - 40u + 64u) << 24;  // twice the bits of 2^-70, and of 2^-40 made larger
const uint kSmallWeight = (127u - 102u + 64u) << 23;  // the bits of 2^-102 made larger
const float kSubnormal = 2.168404344971009e-19;        // 2^-62: 2^-126 made larger; its last place is 2^-149 made larger
const float kDown = 1.0 / 18446744073709551616.0;     // 2^-64
#ifdef ASSAY_FLOAT64
#define UNROLL [[dont_unroll]]  // a multiply-add is a page of instructions
#else
#define UNROLL [[unroll]]
#endif

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Pairs { vec2 at[]; };

shared vec4 scores[kSegment * kFours], stage[kStage], query_stage[8u * kFours];
shared float parts[kThreads], a_of[kQueries], b_of[kQueries], l_of[kQueries];
shared uint begin_of[kQueries], end_of[kQueries];  // what a query sees
shared uint marked, has_far, far_joins;             // has_far: some probabilities of the segment are negative; far_joins: bits of queries

uint first_head, first_token, run_begin, run_end, sequence;  // run_: tokens of one sequence
uint tile_begin, tile_end, latest_begin, earliest_end;        // what any of them sees, and what all of them see
uint segment, k_begin, k_end;                                 // the positions at work: k_: in the segment
bool is_whole;                                                // all see all of these
float m_run, l_run;                                           // of the query of an invocation that joins sums

vec4 fused_4(float a, vec4 b, vec4 c) {
#ifdef ASSAY_FLOAT64
  return vec4(fused(a, b.x, c.x), fused(a, b.y, c.y), fused(a, b.z, c.z), fused(a, b.w, c.w));
#else
  return fma(vec4(a), b, c);
#endif
}
// The smallest of twice the bits of the magnitudes of what is not zero, less one.
uint least_of(vec4 x, uint least) {
  const uvec4 bits = floatBitsToUint(x);
  const uvec4 twice = bits + bits - 1u;
  return min(min(least, min(twice.x, twice.y)), min(twice.z, twice.w));
}
// a * b + c, where that is below 2^-126 made larger: beside 2^-126 made larger the last place is that of subnormal numbers. y: the same rounded as if it were none.
vec4 subnormal_4(float a, vec4 b, vec4 c, vec4 y, uint query) {
  const uvec4 signs = floatBitsToUint(y) & 0x80000000u;
  const vec4 beside = uintBitsToFloat(signs | floatBitsToUint(kSubnormal));
  const vec4 rounded = uintBitsToFloat(signs | floatBitsToUint(abs(fused_4(a, b, c + beside) - beside)));
  const bvec4 is_subnormal = lessThan(abs(y), vec4(kSubnormal));
  const vec4 cancelled = mix(vec4(0.0), c, is_subnormal);  // c and what stands beside it may have more places than there are
  if (any(greaterThanEqual(abs(cancelled), vec4(kSubnormal)))) atomicOr(marked, 1u << query);
  return mix(y, rounded, is_subnormal);
}
bvec4 and_of(bvec4 a, bvec4 b) { return bvec4(a.x && b.x, a.y && b.y, a.z && b.z, a.w && b.w); }
// 2^64 exp(x) for x of 0 and below, as exponential() has it where that is not below the smallest normal number.
float exponential_up(float x) {
  const float shifted = fused_normal(x, uintBitsToFloat(0x3FB8AA3Bu), kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = fused_normal(n, uintBitsToFloat(0x3102E308u), fused_normal(n, uintBitsToFloat(0xBF317218u), x));
  float p = fused_normal(uintBitsToFloat(0x3AB50D39u), r, uintBitsToFloat(kExponential[0]));
  p = fused_normal(p, r, uintBitsToFloat(kExponential[1]));
  p = fused_normal(p, r, uintBitsToFloat(kExponential[2]));
  p = fused_normal(p, r, uintBitsToFloat(kExponential[3]));
  p = fused_normal(p, r, uintBitsToFloat(kExponential[4]));
  p = fused_normal(p, r, uintBitsToFloat(kExponential[5]));
  return x <= -104.0 ? 0.0 : p * uintBitsToFloat((floatBitsToUint(shifted) << 23) + (191u << 23));
}
bool is_far(float x) { return x < -54.0 && x > -104.0; }  // exp(x) is below 2^-77 and may not be 0

// Eight elements of a row of the cache, as they lie there; as floats.
uvec4 raw_eight(Words cache, uint type, uint row, uint j) {
  if (type == kCacheF16) return Vectors(cache).at[(row + 2u * j) >> 4];
  const uint block = row + j / 32u * 34u, at = block + 2u + j % 32u;
  return uvec4(memory_word(cache, at), memory_word(cache, at + 4u), memory_half(cache, block), 0u);
}
vec4 of_bytes(uint word, float scale) {
  const int x = int(word);
  return scale * vec4(bitfieldExtract(x, 0, 8), bitfieldExtract(x, 8, 8), bitfieldExtract(x, 16, 8), bitfieldExtract(x, 24, 8));
}
vec4 low_four(uint type, uvec4 raw) {
  return type == kCacheF16 ? vec4(halves_to_floats(raw.x), halves_to_floats(raw.y)) : of_bytes(raw.x, half_to_float(raw.z));
}
vec4 high_four(uint type, uvec4 raw) {
  return type == kCacheF16 ? vec4(halves_to_floats(raw.z), halves_to_floats(raw.w)) : of_bytes(raw.y, half_to_float(raw.z));
}
vec4 finite_of(vec4 x) {
  const bvec4 is_wild = greaterThanEqual(floatBitsToUint(x) & 0x7FFFFFFFu, uvec4(kInfinity));
  if (any(is_wild)) atomicOr(marked, 0xFFFFFFFFu);
  return mix(x, vec4(0.0), is_wild);
}

#define EACH_KEY(DO) DO(0, k0.x) DO(1, k0.y) DO(2, k0.z) DO(3, k0.w) DO(4, k1.x) DO(5, k1.y) DO(6, k1.z) DO(7, k1.w)
#define ADD_KEY(i, key) s[2 * i] = fused_4(key, q0, s[2 * i]); s[2 * i + 1] = fused_4(key, q1, s[2 * i + 1]);
#define CLEAR_KEY(i, key) s[2 * i] = s[2 * i + 1] = vec4(0.0);
#define EACH_PUT(DO) DO(0, 0) DO(1, 1) DO(2, 2) DO(3, 3) DO(4, 32) DO(5, 33) DO(6, 34) DO(7, 35)
#define PUT_KEY(i, key) { const uint at = (own_key + key) * kFours + 2u * own_eight; \
  least = least_of(s[2 * i + 1], least_of(s[2 * i], least)); \
  scores[at] = s[2 * i] * push.scale; scores[at + 1u] = s[2 * i + 1] * push.scale; }

#define EACH_LANE(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define MASK(j) if (8u * 4u * i + 4u * j + part - own_begin >= own_n) scores[at + j * kFourKeys][at_query] = uintBitsToFloat(0xFF800000u);
#define FIND_MOST(j) most = max(most, scores[at + j * kFourKeys][at_query]);
#define WEIGH(j) { const float p = exponential_up(scores[at + j * kFourKeys][at_query] - most); scores[at + j * kFourKeys][at_query] = p; \
  lanes[j] += p; least = min(least, floatBitsToUint(p) - 1u); }

// Where one of the invocation's is far: rounded as a subnormal number is, and with a sign.
#define WEIGH_FAR(j) { float p = scores[at + j * kFourKeys][at_query]; \
  if (p < kSubnormal) p = (p + kSubnormal) - kSubnormal; \
  if (floatBitsToUint(p) - 1u < kSmallWeight) scores[at + j * kFourKeys][at_query] = -p; \
  if (p == 0.0) scores[at + j * kFourKeys][at_query] = 0.0; \
  lanes[j] += p; }

#define EACH_LOAD(DO, x) DO(0, x) DO(1, x) if (kLoads > 2u) { DO(2, x) DO(3, x) }
#define FOUR_OF(x) vec4(x[4u * own_four], x[4u * own_four + 1u], x[4u * own_four + 2u], x[4u * own_four + 3u])
#define EACH_COLUMN(DO) { DO(0) } if (kDim > 64u) { DO(1) } if (kDim > 128u) { DO(2) DO(3) }
#define CLEAR_SUMS(c) s[4 * c] = s[4 * c + 1] = s[4 * c + 2] = s[4 * c + 3] = vec4(0.0);
#define CLEAR_OUTPUTS(c) y[4 * c] = y[4 * c + 1] = y[4 * c + 2] = y[4 * c + 3] = vec4(0.0);
#define ADD_COLUMN(c) { const vec4 v = stage[at_value + 16u * c]; \
  s[4 * c] = fused_4(p.x, v, s[4 * c]); s[4 * c + 1] = fused_4(p.y, v, s[4 * c + 1]); \
  s[4 * c + 2] = fused_4(p.z, v, s[4 * c + 2]); s[4 * c + 3] = fused_4(p.w, v, s[4 * c + 3]); }
#define ADD_FAR(c, i) { const vec4 before = s[4 * c + i]; s[4 * c + i] = fused_4(p[i], v, before); \
  if (tagged[i] < 0.0 && any(lessThan(abs(s[4 * c + i]), vec4(kSubnormal)))) s[4 * c + i] = subnormal_4(p[i], v, before, s[4 * c + i], 4u * own_four + i); }
#define ADD_FAR_COLUMN(c) { const vec4 v = stage[at_value + 16u * c]; ADD_FAR(c, 0) ADD_FAR(c, 1) ADD_FAR(c, 2) ADD_FAR(c, 3) }
// a, b: 0, 1 of a query's first segment, 1, 0 where it sees nothing of this one: its sums are 0 then.
#define JOIN(c, i) { const vec4 o = s[4 * c + i], before = y[4 * c + i]; const vec4 x = fused_4(a[i], before, o * b[i]); y[4 * c + i] = x; \
  is_uneven = is_uneven || any(greaterThan(max(abs(before), abs(o)) * 8.881784197001252e-16, abs(x))); \
  least = least_of(x, least_of(o, least)); \
  vanishes = vanishes || any(and_of(equal(x, vec4(0.0)), notEqual(floatBitsToUint(o), uvec4(0u)))); }  // -0 too
#define JOIN_COLUMN(c) JOIN(c, 0) JOIN(c, 1) JOIN(c, 2) JOIN(c, 3)
#define PUT_OUTPUT(c, i) scores[(4u * own_four + i) * kWhole + own_column + 16u * c] = y[4 * c + i];
#define PUT_COLUMN(c) PUT_OUTPUT(c, 0) PUT_OUTPUT(c, 1) PUT_OUTPUT(c, 2) PUT_OUTPUT(c, 3)
#define SINK_COLUMN(c) y[4 * c] *= a.x; y[4 * c + 1] *= a.y; y[4 * c + 2] *= a.z; y[4 * c + 3] *= a.w;

uint heads_mask() { return (1u << push.heads_log2) - 1u; }
bool sees(uint query) { return begin_of[query] < segment + kSegment && end_of[query] > segment; }

// Where the run ends, and what its queries see.
void find_ranges(uint end_token) {
  const uint thread = gl_LocalInvocationID.x;
  sequence = uint(push.sequences.at[run_begin]);
  for (run_end = run_begin + 1u; run_end < end_token && uint(push.sequences.at[run_end]) == sequence;) ++run_end;
  barrier();
  if (thread < kQueries) {  // those that are not of the run see what their neighbours do
    const uint at = clamp(first_token + (thread >> push.heads_log2), run_begin, run_end - 1u);
    const uvec2 range = visible(uint(push.positions.at[at]), uint(push.n_positions.at[sequence]));
    begin_of[thread] = range.x;
    end_of[thread] = range.y + 1u;
  }
  barrier();
  tile_begin = earliest_end = 0xFFFFFFFFu;
  tile_end = latest_begin = 0u;
  for (uint i = 0u; i < kQueries; i += heads_mask() + 1u) {
    tile_begin = min(tile_begin, begin_of[i]);
    latest_begin = max(latest_begin, begin_of[i]);
    earliest_end = min(earliest_end, end_of[i]);
    tile_end = max(tile_end, end_of[i]);
  }
}

// The segment's keys that any query sees, by 32.
void find_keys() {
  k_begin = max(tile_begin, segment) / 32u * 32u - segment;
  k_end = (min(tile_end, segment + kSegment) + 31u) / 32u * 32u - segment;
  is_whole = latest_begin <= segment + k_begin && earliest_end >= segment + k_end;
}

// Of a query, by one invocation: what the segment means for those before.
void join_sums(float most) {
  const uint thread = gl_LocalInvocationID.x;
  if (thread < kQueries) {
    const float sum = (parts[thread] + parts[2u * kQueries + thread]) + (parts[kQueries + thread] + parts[3u * kQueries + thread]);
    const float m_both = max(m_run, most), down = m_run - m_both, own_down = most - m_both;
    float a = exponential_up(down) * kDown, b = exponential_up(own_down) * kDown;
    const bool is_first = begin_of[thread] / kSegment * kSegment == segment;
    if (sees(thread) && is_first) {
      m_run = most;
      l_run = sum;
      a = 0.0;
      b = 1.0;
    } else if (sees(thread)) {
      if (is_far(down) || is_far(own_down)) atomicOr(far_joins, 1u << thread);
      l_run = fused_normal(l_run, a, sum * b);
      m_run = m_both;
    } else {
      a = 1.0;
      b = 0.0;
    }
    a_of[thread] = a;
    b_of[thread] = b;
  }
}

// Scores become probabilities: an invocation has every fourth key of a query.
void find_probabilities() {
  const uint thread = gl_LocalInvocationID.x, query = thread % kQueries, part = thread / kQueries, at_query = query % 4u, kFourKeys = 4u * kFours;
  float most = uintBitsToFloat(0xFF800000u), lanes[8] = float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
  if (!is_whole) {
    const uint own_begin = max(begin_of[query], segment) - segment, own_end = min(max(end_of[query], segment + own_begin), segment + kSegment) - segment;
    const uint own_n = own_end - min(own_begin, own_end);
    [[dont_unroll]] for (uint i = k_begin / 32u; i < k_end / 32u; ++i) {
      const uint at = (32u * i + part) * kFours + query / 4u;
      EACH_LANE(MASK)
    }
  }
  [[dont_unroll]] for (uint i = k_begin / 32u; i < k_end / 32u; ++i) {
    const uint at = (32u * i + part) * kFours + query / 4u;
    EACH_LANE(FIND_MOST)
  }
  parts[thread] = most;
  barrier();
  most = max(max(parts[query], parts[kQueries + query]), max(parts[2u * kQueries + query], parts[3u * kQueries + query]));
  if (!sees(query)) most = 0.0;
  uint least = 0xFFFFFFFFu;
  [[dont_unroll]] for (uint i = k_begin / 32u; i < k_end / 32u; ++i) {
    const uint at = (32u * i + part) * kFours + query / 4u;
    EACH_LANE(WEIGH)
  }
  if (least < kSmallWeight) {
    has_far = 1u;
    lanes = float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    [[dont_unroll]] for (uint i = k_begin / 32u; i < k_end / 32u; ++i) {
      const uint at = (32u * i + part) * kFours + query / 4u;
      EACH_LANE(WEIGH_FAR)
    }
  }
  barrier();
  parts[thread] = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  barrier();
  join_sums(most);
}

// Sums with what the sinks add to them.
void end_sums() {
  const uint thread = gl_LocalInvocationID.x;
  if (thread < kQueries) {
    a_of[thread] = 1.0;
    if ((FLAGS & kSink) != 0u) {
      const float sink = push.sinks.at[first_head + (thread & heads_mask())], m_both = max(m_run, sink);
      if (is_small(sink, -79) || is_far(m_run - m_both) || is_far(sink - m_both)) atomicOr(marked, 1u << thread);
      a_of[thread] = exponential_up(m_run - m_both) * kDown;
      l_run = fused_normal(l_run, a_of[thread], exponential_up(sink - m_both));
    }
    l_of[thread] = l_run;
  }
}

// One by one: the operation is a page of instructions.
void write_quotients() {
  const uint thread = gl_LocalInvocationID.x;
  [[dont_unroll]] for (uint i = thread; i < kQueries * kDim; i += kThreads) {
    const uint u = i / kDim, token = first_token + (u >> push.heads_log2);
    if (token < run_begin || token >= run_end) continue;
    push.y.at[(token * push.n_heads + first_head + (u & heads_mask())) * kDim + i % kDim] = quotient_seen(scores[i / 4u][i % 4u], l_of[u]);
    if (is_risky) atomicOr(marked, 1u << u);
    is_risky = false;
  }
}

// What main() has at hand are the names in these. A stage of keys is [element][key], one of values [key][element].
#define LOAD_KEY(n, element) raw[n] = raw_eight(push.k, kTypeK, (first_row + min(thread + n * kThreads, last_key) * push.n_kv_heads) * k_row, element);
#define LOAD_KEYS(element) EACH_LOAD(LOAD_KEY, element) \
  pair = puts ? Pairs(push.q).at[put_at + (element) / 2u] : vec2(0.0);
#define LOAD_VALUE(n, key) { const uint unit = thread + n * kThreads; \
  raw[n] = raw_eight(push.v, kTypeV, (first_row + min((key) + unit / (kDim / 8u), last_key) * push.n_kv_heads) * v_row, unit % (kDim / 8u) * 8u); }
#define LOAD_VALUES(key) EACH_LOAD(LOAD_VALUE, key)
#define STORE_KEY(n, unused) { const vec4 low = low_four(kTypeK, raw[n]), high = high_four(kTypeK, raw[n]); \
  const uint key = thread + n * kThreads, at = key / 4u, i = key % 4u; \
  stage[at][i] = low.x, stage[at + 64u][i] = low.y, stage[at + 128u][i] = low.z, stage[at + 192u][i] = low.w; \
  stage[at + 256u][i] = high.x, stage[at + 320u][i] = high.y, stage[at + 384u][i] = high.z, stage[at + 448u][i] = high.w; }
#define STORE_PAIR if (is_small(pair.x, -79) || is_small(pair.y, -79)) atomicOr(marked, 1u << put_query); \
  query_stage[2u * put_pair * kFours + put_query / 4u][put_query % 4u] = pair.x; \
  query_stage[(2u * put_pair + 1u) * kFours + put_query / 4u][put_query % 4u] = pair.y;
// Where a key is masked 0 times an infinity is none.
#define STORE_VALUE(n, unused) { const uint at = 2u * (thread + n * kThreads); const vec4 low = low_four(kTypeV, raw[n]), high = high_four(kTypeV, raw[n]); \
  stage[at] = is_whole ? low : finite_of(low); \
  stage[at + 1u] = is_whole ? high : finite_of(high); }

void main() {
  const uint thread = gl_LocalInvocationID.x, tile_tokens = kQueries >> push.heads_log2;
  first_head = gl_WorkGroupID.x << push.heads_log2;
  first_token = (gl_NumWorkGroups.y - 1u - gl_WorkGroupID.y) * tile_tokens;  // the longest first
  const uint kv_head = first_head / (push.n_heads / push.n_kv_heads);
  const uint end_token = min(first_token + tile_tokens, push.n_tokens);
  const uint k_row = cache_row_bytes(kTypeK, kDim), v_row = cache_row_bytes(kTypeV, kDim);
  const uint own_eight = thread % kEights, own_key = thread / kEights / 8u * 64u + thread / kEights % 8u * 4u;  // keys own_key .., 32 further ..
  const uint own_four = thread % kFours, own_column = thread / kFours;
  const uint put_query = thread / 4u, put_pair = thread % 4u;  // elements that it brings
  uvec4 raw[4];
  vec4 s[16], y[16];
  if (thread == 0u) marked = 0u;

  for (run_begin = first_token; run_begin < end_token; run_begin = run_end) {  // of one sequence
    find_ranges(end_token);
    const uint put_token = first_token + (put_query >> push.heads_log2);
    const bool puts = put_token >= run_begin && put_token < run_end;
    const uint put_at = ((puts ? put_token : run_begin) * push.n_heads + first_head + (put_query & heads_mask())) * (kDim / 2u) + put_pair;
    m_run = l_run = 0.0;
    EACH_COLUMN(CLEAR_OUTPUTS)

    for (segment = tile_begin / kSegment * kSegment; segment < tile_end; segment += kSegment) {
      find_keys();
      const uint first_row = (sequence * push.n_ctx + segment) * push.n_kv_heads + kv_head, last_key = tile_end - 1u - segment;
      const bool scores_any = own_key / 64u * 64u < k_end && own_key / 64u * 64u + 64u > k_begin;
      vec2 pair;

      // Scores.
      EACH_PUT(CLEAR_KEY)
      LOAD_KEYS(0u)
      [[dont_unroll]] for (uint element = 0u; element < kDim; element += 8u) {
        barrier();
        EACH_LOAD(STORE_KEY, 0)
        STORE_PAIR
        barrier();
        if (element + 8u < kDim) { LOAD_KEYS(element + 8u) }
        if (scores_any) {
          UNROLL for (uint e = 0u; e < 8u; ++e) {
            const vec4 q0 = query_stage[e * kFours + 2u * own_eight], q1 = query_stage[e * kFours + 2u * own_eight + 1u];
            const vec4 k0 = stage[64u * e + own_key / 4u], k1 = stage[64u * e + own_key / 4u + 8u];
            EACH_KEY(ADD_KEY)
          }
        }
      }
      LOAD_VALUES(k_begin)
      if (scores_any) {
        uint least = 0xFFFFFFFFu;
        EACH_PUT(PUT_KEY)
        if (kFlushes != 0u && least < kSmallScore) atomicOr(marked, 255u << (8u * own_eight));
      }
      if (thread == 0u) has_far = far_joins = 0u;
      barrier();
      find_probabilities();

      // Outputs.
      EACH_COLUMN(CLEAR_SUMS)
      [[dont_unroll]] for (uint key = k_begin; key < k_end; key += kStageKeys) {
        barrier();
        EACH_LOAD(STORE_VALUE, 0)
        barrier();
        if (key + kStageKeys < k_end) { LOAD_VALUES(key + kStageKeys) }
        if (has_far != 0u) {
          [[dont_unroll]] for (uint k = 0u; k < kStageKeys; ++k) {
            const vec4 tagged = scores[(key + k) * kFours + own_four], p = abs(tagged);
            const uint at_value = k * kWhole + own_column;
            EACH_COLUMN(ADD_FAR_COLUMN)
          }
        } else {
          [[dont_unroll]] for (uint k = 0u; k < kStageKeys; k += 8u) {
            UNROLL for (uint i = 0u; i < 8u; ++i) {
              const vec4 p = scores[(key + k + i) * kFours + own_four];
              const uint at_value = (k + i) * kWhole + own_column;
              EACH_COLUMN(ADD_COLUMN)
            }
          }
        }
      }
      {
        uint least = 0xFFFFFFFFu;
        bool vanishes = false, is_uneven = false;  // is_uneven: 2^-50 of one of them is more than what they make
        const vec4 a = FOUR_OF(a_of), b = FOUR_OF(b_of);
        EACH_COLUMN(JOIN_COLUMN)
        const bool is_joined_far = ((far_joins >> (4u * own_four)) & 15u) != 0u;
        if (vanishes || least < kSmallOutput || (is_joined_far && is_uneven)) atomicOr(marked, 15u << (4u * own_four));
      }
    }

    barrier();
    end_sums();
    barrier();
    const vec4 a = FOUR_OF(a_of);
    EACH_COLUMN(SINK_COLUMN)
    EACH_COLUMN(PUT_COLUMN)
    barrier();
    write_quotients();
  }
  barrier();
  if (thread == 0u) push.marks.at[gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x] = marked;
}
