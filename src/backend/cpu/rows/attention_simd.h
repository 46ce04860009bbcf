// Attention over one block of query rows, written once over Vec (simd.h). Contract: ops/attention/attention.h.
// Scores and weighted values are the same small product, C[r, c] = chain of fma over k of A[r, k] * B[k, c]: with the
// queries, elements of a head and 32 keys side by side; then with the probabilities, keys, and the elements of the
// values side by side.
//
//   a block    up to 12 query rows that share a KV head; one segment of 256 keys after the other
//   scores     lanes: 16 keys of a tile; a chain over the head's elements, queries packed [element][row]   --->  p [row][256], scratch
//   softmax    a row alone: its largest score m, p = exp(score - m), their sum l by Lanes32
//   values     lanes: 16 elements of the values; a chain over the segment's visible keys                   --->  o [row][element], scratch
//   merge      (m, l, o) of the segment into those of the segments before it, then y = o / l
#pragma once

#include "backend/cpu/rows/math_simd.h"
#include "backend/cpu/rows/row_simd.h"
#include "backend/cpu/sets/kernels.h"
#include "backend/cpu/sets/simd.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kSegment = ops::kAttentionSegment;
constexpr int64_t kQueryStride = 16;  // packed queries: [head_dim][kQueryStride], one row of the block in each column
constexpr int64_t kHalves = kSegment / 16;  // of key tiles, in a segment
constexpr float kMinusInfinity = -__builtin_inff();

// ---- B of the scores: get(k, c) is element k of 16 keys, the c-th 16 from `half` on, which is even where c goes
// beyond 0; it lies at place(tile, k, c), tile being that of c; upcoming has the tiles after those that are read, which
// are fetched meanwhile.
template <int kCols>
struct Keys {
  static constexpr int kTiles = (kCols + 1) / 2;
  const std::byte* tiles[kTiles];
  const std::byte* upcoming[kTiles];
  Keys(const CacheHead& head, int64_t half, int64_t half_bytes) noexcept {
#pragma GCC unroll 4
    for (int i = 0; i < kTiles; ++i) {
      tiles[i] = key_tile(head, half / 2 + i) + half % 2 * half_bytes;
      upcoming[i] = key_tile(head, half / 2 + kTiles + i);
    }
  }
};
template <int kCols>
struct KeysF32 : Keys<kCols> {
  static constexpr int kColsInLine = 1;
  KeysF32(const CacheHead& head, int64_t half) noexcept : Keys<kCols>(head, half, 64) {}
  static const std::byte* place(const std::byte* tile, int64_t k, int c) noexcept {
    return tile + c % 2 * 64 + k * 128;
  }
  Vec get(int64_t k, int c) const noexcept {
    return load(reinterpret_cast<const float*>(place(this->tiles[c / 2], k, c)));
  }
  const std::byte* next(int64_t k, int c) const noexcept { return place(this->upcoming[c / 2], k, c); }
};
template <int kCols>
struct KeysF16 : Keys<kCols> {
  static constexpr int kColsInLine = 2;
  KeysF16(const CacheHead& head, int64_t half) noexcept : Keys<kCols>(head, half, 32) {}
  static const std::byte* place(const std::byte* tile, int64_t k, int c) noexcept { return tile + c % 2 * 32 + k * 64; }
  Vec get(int64_t k, int c) const noexcept { return load_half(place(this->tiles[c / 2], k, c)); }
  const std::byte* next(int64_t k, int c) const noexcept { return place(this->upcoming[c / 2], k, c); }
};
template <int kCols>
struct KeysQ8 : Keys<kCols> {  // the integers lie behind the scales
  static constexpr int kColsInLine = 2;
  int64_t integers;  // where they begin
  int64_t scales;    // where those of the half begin: they are twice as wide as the integers
  KeysQ8(const CacheHead& head, int64_t half) noexcept
      : Keys<kCols>(head, half, 16), integers(head.head_dim * 2), scales(half % 2 * 16) {}
  static const std::byte* place(const std::byte* tile, int64_t k, int c) noexcept { return tile + c % 2 * 16 + k * 32; }
  Vec get(int64_t k, int c) const noexcept {
    const std::byte* const tile = this->tiles[c / 2];
    return mul(load_half(tile + scales + c % 2 * 32 + k / 32 * 64), load_int8(place(tile + integers, k, c)));
  }
  const std::byte* next(int64_t k, int c) const noexcept { return place(this->upcoming[c / 2] + integers, k, c); }
};

// ---- B of the weighted values: get(k, c) is elements 16 (column + c) .. + 15 of the value at position + k, of the
// same page; column is even where c goes beyond 0. What is fetched meanwhile are the rows of the next page.
struct Values {
  const std::byte* base;
  int64_t row_bytes;
  int64_t ahead;
  Values(const CacheHead& head, int64_t position, int64_t column_bytes) noexcept
      : base(value_row(head, position) + column_bytes), row_bytes(head.v_row_bytes),
        ahead(value_row(head, position + kCachePage) - value_row(head, position)) {}
};
struct ValuesF32 : Values {
  static constexpr int kColsInLine = 1;
  ValuesF32(const CacheHead& head, int64_t position, int64_t column) noexcept : Values(head, position, column * 64) {}
  const std::byte* place(int64_t k, int c) const noexcept { return base + k * row_bytes + c * 64; }
  const std::byte* next(int64_t k, int c) const noexcept { return place(k, c) + ahead; }
  Vec get(int64_t k, int c) const noexcept { return load(reinterpret_cast<const float*>(place(k, c))); }
};
struct ValuesF16 : Values {
  static constexpr int kColsInLine = 2;
  ValuesF16(const CacheHead& head, int64_t position, int64_t column) noexcept : Values(head, position, column * 32) {}
  const std::byte* place(int64_t k, int c) const noexcept { return base + k * row_bytes + c * 32; }
  const std::byte* next(int64_t k, int c) const noexcept { return place(k, c) + ahead; }
  Vec get(int64_t k, int c) const noexcept { return load_half(place(k, c)); }
};
struct ValuesQ8 : Values {
  static constexpr int kColsInLine = 4;
  const std::byte* scales;
  int64_t scale_row_bytes;
  ValuesQ8(const CacheHead& head, int64_t position, int64_t column) noexcept
      : Values(head, position, column * 16), scales(value_scales(head, position) + column / 2 * 2),
        scale_row_bytes(head.v_dim / 32 * 2) {}
  const std::byte* place(int64_t k, int c) const noexcept { return base + k * row_bytes + c * 16; }
  const std::byte* next(int64_t k, int c) const noexcept { return place(k, c) + ahead; }
  Vec get(int64_t k, int c) const noexcept {
    uint16_t scale;
    __builtin_memcpy(&scale, scales + k * scale_row_bytes + c / 2 * 2, sizeof scale);
    return mul(splat(half_bits_to_float(scale)), load_int8(place(k, c)));
  }
};

// Values that lie in the keys are turned over, 32 keys at a time, into rows of floats [kKeyTile][v_cols]; ValuesF32
// then reads those.
template <template <int> class Keys>
static inline void turn_over(const CacheHead& head, int64_t tile, float* turned) noexcept {
  for (int64_t half = 0; half < 2; ++half) {
    const Keys<1> keys(head, 2 * tile + half);
    for (int64_t j = 0; j < head.v_cols; j += 16) {
      float block[16 * 16];
      for (int64_t i = 0; i < 16; ++i) store(block + i * 16, j + i < head.v_dim ? keys.get(j + i, 0) : splat(0.0f));
      for (int64_t key = 0; key < 16; ++key) {
        float* row = turned + (half * 16 + key) * head.v_cols + j;
        for (int64_t i = 0; i < 16; ++i) row[i] = block[i * 16 + key];
      }
    }
  }
}

// acc[r][c] += over k ascending a[k * kStepK + r * kStepR] * b.get(k, c). What comes next is fetched into the
// second-level cache: with few rows the time is that of memory, and pages of 4 KiB are too short for the processor's
// own prefetching.
template <int kRows, int kCols, int64_t kStepK, int64_t kStepR, class B>
static inline void product(const float* a, const B& b, int64_t n_k, Vec (&acc)[kRows][kCols]) noexcept {
  for (int64_t k = 0; k < n_k; ++k) {
    Vec column[kCols];
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c) column[c] = b.get(k, c);
#pragma GCC unroll 8
    for (int c = 0; c < kCols; c += B::kColsInLine) __builtin_prefetch(b.next(k, c), 0, 2);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Vec x = splat(a[k * kStepK + r * kStepR]);
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) acc[r][c] = fma(x, column[c], acc[r][c]);
    }
  }
}

constexpr int widest_tile(int rows) noexcept {
  int cols = 1;
  while (cols < 8 && cols * 2 * rows <= kTileRegisters) cols *= 2;
  return cols;
}

// Scores of kRows rows and keys of halves [half, end), which count from the segment's begin, into p [kRows][kSegment].
template <template <int> class Keys, int kRows, int kCols>
static inline void score_columns(const AttentionBlock& block, const float* q, int64_t segment, int64_t half,
                                 int64_t end, float* p) noexcept {
  const Vec scale = splat(block.scale);
  for (; half + kCols <= end; half += kCols) {
    Vec acc[kRows][kCols];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols; ++c) acc[r][c] = splat(0.0f);
    }
    product<kRows, kCols, kQueryStride, 1>(q, Keys<kCols>(block.cache, segment * kHalves + half), block.cache.head_dim,
                                           acc);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) store(p + r * kSegment + (half + c) * 16, mul(acc[r][c], scale));
    }
  }
  if constexpr (kCols > 1) score_columns<Keys, kRows, kCols / 2>(block, q, segment, half, end, p);
}

// o[r, :] += over keys [begin, end), which count from the segment's begin; p and o of the first row.
template <class Values, int kRows, int kCols>
static inline void value_columns(const CacheHead& head, const float* p, int64_t segment, int64_t begin, int64_t end,
                                 int64_t column, float* o) noexcept {
  const int64_t n_columns = head.v_cols / 16;
  for (; column + kCols <= n_columns; column += kCols) {
    Vec acc[kRows][kCols];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) acc[r][c] = load(o + r * head.v_cols + (column + c) * 16);
    }
    for (int64_t at = begin; at < end;) {  // page by page, each chain of sums going on
      const int64_t position = segment * kSegment + at, page_end = at + kCachePage - position % kCachePage;
      const int64_t stop = end < page_end ? end : page_end;
      product<kRows, kCols, 1, kSegment>(p + at, Values(head, position, column), stop - at, acc);
      at = stop;
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) store(o + r * head.v_cols + (column + c) * 16, acc[r][c]);
    }
  }
  if constexpr (kCols > 1) value_columns<Values, kRows, kCols / 2>(head, p, segment, begin, end, column, o);
}

// Calls work.template operator()<R>(first row) over n_rows rows, R rounded up to a size that exists: memory for
// kAttentionRows is there.
template <class Work>
static inline void for_row_tiles(int64_t n_rows, const Work& work) noexcept {
  for (int64_t row = 0; row < n_rows; row += kTileRows) {
    const int64_t left = n_rows - row < kTileRows ? n_rows - row : kTileRows;
    if (left == 1) {
      work.template rows<1>(row);
    } else if (left <= 3) {
      work.template rows<3>(row);
    } else if (left == 4) {
      work.template rows<4>(row);
    } else if (left <= 6) {
      work.template rows<6>(row);
    } else if constexpr (kTileRows > 6) {
      left <= 8 ? work.template rows<8>(row) : work.template rows<12>(row);
    }
  }
}

template <template <int> class Keys>
struct ScoreWork {
  const AttentionBlock& block;
  const float* q;
  int64_t segment, half, end;
  float* p;
  template <int kRows>
  void rows(int64_t row) const noexcept {
    score_columns<Keys, kRows, widest_tile(kRows)>(block, q + row, segment, half, end, p + row * kSegment);
  }
};

template <class Values>
struct ValueWork {
  const CacheHead& head;
  const float* p;
  int64_t segment, begin, end;
  float* o;
  template <int kRows>
  void rows(int64_t row) const noexcept {
    value_columns<Values, kRows, widest_tile(kRows)>(head, p + row * kSegment, segment, begin, end, 0,
                                                     o + row * head.v_cols);
  }
};

// Visible keys of each row in one segment, counted from its begin; begin >= end: none.
struct Visible {
  int64_t begin[kAttentionRows], end[kAttentionRows];
  int64_t first = kSegment, last = 0;               // of any row, end exclusive
  int64_t common_begin = 0, common_end = kSegment;  // of all rows that see a key
  Visible(const AttentionBlock& block, int64_t segment) noexcept {
    for (int64_t r = 0; r < block.n_rows; ++r) {
      const int64_t from = block.first[r] - segment * kSegment, to = block.last[r] + 1 - segment * kSegment;
      begin[r] = from < 0 ? 0 : from;
      end[r] = to > kSegment ? kSegment : to;
      if (begin[r] >= end[r]) continue;
      first = begin[r] < first ? begin[r] : first;
      last = end[r] > last ? end[r] : last;
      common_begin = begin[r] > common_begin ? begin[r] : common_begin;
      common_end = end[r] < common_end ? end[r] : common_end;
    }
  }
};

// Scores in p become probabilities, masked ones of touched registers +0; m and l of the row.
static inline void soften(float* p, int64_t begin, int64_t end, float* m, float* l) noexcept {
  const int64_t half_begin = begin / 16, half_end = (end + 15) / 16;
  Vec top = splat(kMinusInfinity);
  for (int64_t half = half_begin; half < half_end; ++half) {
    const Vec s = within(load(p + half * 16), begin - half * 16, end - half * 16, splat(kMinusInfinity));
    top = greater(s, top);
  }
  *m = largest(top);
  Vec sum[2] = {splat(0.0f), splat(0.0f)};  // a masked lane adds +0 to a sum that is never -0
  for (int64_t half = half_begin; half < half_end; ++half) {
    const Vec e = within(exp(sub(load(p + half * 16), splat(*m))), begin - half * 16, end - half * 16, splat(0.0f));
    store(p + half * 16, e);
    sum[half % 2] = add(sum[half % 2], e);
  }
  *l = fold(sum[0], sum[1]);
}

// Adds to o the keys [from, to) of the segment; where head begins with them (values turned over) segment is 0.
template <class Values>
static void weigh_keys(const CacheHead& head, const AttentionBlock& block, const Visible& visible, int64_t from,
                       int64_t to, int64_t segment, const float* p, float* o) noexcept {
  const auto least = [](int64_t a, int64_t b) { return a < b ? a : b; };
  const auto most = [](int64_t a, int64_t b) { return a > b ? a : b; };
  const bool common = visible.common_begin < visible.common_end;
  const auto one_row = [&](int64_t r, int64_t begin, int64_t end) {
    begin = most(begin, from) - from, end = least(end, to) - from;
    if (begin < end)
      value_columns<Values, 1, widest_tile(1)>(head, p + from + r * kSegment, segment, begin, end, 0,
                                               o + r * head.v_cols);
  };
  // A masked key must not enter a chain even as 0 * v, so the ragged ends are done row by row.
  for (int64_t r = 0; r < block.n_rows; ++r) {
    one_row(r, visible.begin[r],
            common && visible.end[r] > visible.common_begin ? visible.common_begin : visible.end[r]);
  }
  if (!common) return;
  const int64_t begin = most(visible.common_begin, from) - from, end = least(visible.common_end, to) - from;
  if (begin < end) for_row_tiles(block.n_rows, ValueWork<Values>{head, p + from, segment, begin, end, o});
  for (int64_t r = 0; r < block.n_rows; ++r) one_row(r, visible.common_end, visible.end[r]);
}

template <class Values>
static void weigh(const AttentionBlock& block, const Visible& visible, int64_t segment, const float* p,
                  float* o) noexcept {
  weigh_keys<Values>(block.cache, block, visible, 0, kSegment, segment, p, o);
}

// The same where values lie in the keys, tile by tile: every chain goes on where it stood.
template <template <int> class Keys>
static void weigh_in_keys(const AttentionBlock& block, const Visible& visible, int64_t segment, const float* p,
                          float* o, float* turned) noexcept {
  CacheHead head = block.cache;
  head.v = reinterpret_cast<std::byte*>(turned);
  head.v_row_bytes = head.v_cols * static_cast<int64_t>(sizeof(float));
  const int32_t one_page[2] = {0, 0};
  head.pages = one_page;
  head.v_page_bytes = 0;
  for (int64_t tile = visible.first / kKeyTile; tile * kKeyTile < visible.last; ++tile) {
    turn_over<Keys>(block.cache, segment * (kSegment / kKeyTile) + tile, turned);
    weigh_keys<ValuesF32>(head, block, visible, tile * kKeyTile, (tile + 1) * kKeyTile, 0, p, o);
  }
}

static inline void pack_queries(const AttentionBlock& block, float* q) noexcept {
  for (int64_t r = 0; r < block.n_rows; ++r) {
    for (int64_t j = 0; j < block.cache.head_dim; ++j) q[j * kQueryStride + r] = block.q[r][j];
  }
}

// scratch: p [kAttentionRows][kSegment], packed queries, two partials, values turned over.
static inline float* queries_in(std::byte* scratch) noexcept {
  return reinterpret_cast<float*>(scratch) + kAttentionRows * kSegment;
}

static inline int64_t floats_before_turned(int64_t head_dim, int64_t v_cols) noexcept {
  return kAttentionRows * kSegment + kQueryStride * head_dim + 2 * (kPartialO + kAttentionRows * v_cols);
}

static void segment_share(const AttentionBlock& block, int64_t segment, float* partial, std::byte* scratch) noexcept {
  auto* p = reinterpret_cast<float*>(scratch);
  const float* q = queries_in(scratch);
  const Visible visible(block, segment);
  if (visible.first >= visible.last) return;
  const int64_t half = visible.first / 32 * 2, half_end = (visible.last + 31) / 32 * 2;
  if (block.cache.type_k == ops::CacheType::f16) {
    for_row_tiles(block.n_rows, ScoreWork<KeysF16>{block, q, segment, half, half_end, p});
  } else if (block.cache.type_k == ops::CacheType::f32) {
    for_row_tiles(block.n_rows, ScoreWork<KeysF32>{block, q, segment, half, half_end, p});
  } else {
    for_row_tiles(block.n_rows, ScoreWork<KeysQ8>{block, q, segment, half, half_end, p});
  }
  for (int64_t r = 0; r < block.n_rows; ++r) {
    if (visible.begin[r] >= visible.end[r]) continue;
    if (block.softcap > 0) {
      float* scores = p + r * kSegment + visible.begin[r];
      softcap_rows(scores, block.softcap, visible.end[r] - visible.begin[r], scores);
    }
    soften(p + r * kSegment, visible.begin[r], visible.end[r], partial + r, partial + kPartialL + r);
  }
  for (int64_t j = 0; j < block.n_rows * block.cache.v_cols; j += 16) store(partial + kPartialO + j, splat(0.0f));
  if (block.cache.values_in_keys()) {
    float* turned = p + floats_before_turned(block.cache.head_dim, block.cache.v_cols);
    block.cache.type_k == ops::CacheType::f16
        ? weigh_in_keys<KeysF16>(block, visible, segment, p, partial + kPartialO, turned)
    : block.cache.type_k == ops::CacheType::f32
        ? weigh_in_keys<KeysF32>(block, visible, segment, p, partial + kPartialO, turned)
        : weigh_in_keys<KeysQ8>(block, visible, segment, p, partial + kPartialO, turned);
  } else if (block.cache.type_v == ops::CacheType::f16) {
    weigh<ValuesF16>(block, visible, segment, p, partial + kPartialO);
  } else if (block.cache.type_v == ops::CacheType::f32) {
    weigh<ValuesF32>(block, visible, segment, p, partial + kPartialO);
  } else {
    weigh<ValuesQ8>(block, visible, segment, p, partial + kPartialO);
  }
}

// Merges the share of `segment` into what the segments before it gave; a row's first visible segment starts it.
static void merge_share(const AttentionBlock& block, int64_t segment, const float* share, float* total) noexcept {
  const int64_t v_cols = block.cache.v_cols;
  for (int64_t r = 0; r < block.n_rows; ++r) {
    const int64_t first = block.first[r] / kSegment;
    if (segment < first || segment > block.last[r] / kSegment) continue;
    const float* o_share = share + kPartialO + r * v_cols;
    float* o = total + kPartialO + r * v_cols;
    float& m = total[r];
    float& l = total[kPartialL + r];
    if (segment == first) {
      m = share[r];
      l = share[kPartialL + r];
      for (int64_t j = 0; j < v_cols; j += 16) store(o + j, load(o_share + j));
      continue;
    }
    const float m_both = share[r] > m ? share[r] : m;
    const float a = num::exp(m - m_both), b = num::exp(share[r] - m_both);
    l = num::fma(l, a, share[kPartialL + r] * b);
    m = m_both;
    for (int64_t j = 0; j < v_cols; j += 16) store(o + j, fma(load(o + j), splat(a), mul(load(o_share + j), splat(b))));
  }
}

// The sink, where a row has one, is merged as a last segment without values.
static void add_sink(float sink, float m, int64_t v_cols, float* l, float* o) noexcept {
  const float m_both = sink > m ? sink : m;
  const float a = num::exp(m - m_both), b = num::exp(sink - m_both);
  *l = num::fma(*l, a, b);
  for (int64_t j = 0; j < v_cols; j += 16) store(o + j, mul(load(o + j), splat(a)));
}

static void write_rows(const AttentionBlock& block, float* total) noexcept {
  const int64_t v_dim = block.cache.v_dim;
  for (int64_t r = 0; r < block.n_rows; ++r) {
    float* o = total + kPartialO + r * block.cache.v_cols;
    if (block.sink[r] != nullptr) add_sink(*block.sink[r], total[r], block.cache.v_cols, total + kPartialL + r, o);
    const Vec l = splat(total[kPartialL + r]);
    int64_t j = 0;
    for (; j + 16 <= v_dim; j += 16) store(block.y[r] + j, div(load(o + j), l));
    if (j < v_dim) store_first(block.y[r] + j, div(load(o + j), l), v_dim - j);
  }
}

// ---- The table's entries.
static size_t attention_scratch(int64_t head_dim, int64_t v_dim, int64_t) noexcept {
  const int64_t v_cols = (v_dim + 15) / 16 * 16;
  return static_cast<size_t>(floats_before_turned(head_dim, v_cols) + kKeyTile * v_cols) * sizeof(float);
}

static void attention_segment(const AttentionBlock& block, int64_t segment, float* partial,
                              std::byte* scratch) noexcept {
  pack_queries(block, queries_in(scratch));
  segment_share(block, segment, partial, scratch);
}

static void attention_merge(const AttentionBlock& block, int64_t first, int64_t n_segments, float* partials) noexcept {
  const int64_t floats = kPartialO + kAttentionRows * block.cache.v_cols;
  for (int64_t i = 1; i < n_segments; ++i) merge_share(block, first + i, partials + i * floats, partials);
  write_rows(block, partials);
}

static void attention(const AttentionBlock& block, std::byte* scratch) noexcept {
  float* total = queries_in(scratch) + kQueryStride * block.cache.head_dim;
  float* share = total + kPartialO + kAttentionRows * block.cache.v_cols;
  pack_queries(block, queries_in(scratch));
  const int64_t first = block.first[0] / kSegment;
  segment_share(block, first, total, scratch);
  for (int64_t segment = first + 1; segment <= block.last[block.n_rows - 1] / kSegment; ++segment) {
    segment_share(block, segment, share, scratch);
    merge_share(block, segment, share, total);
  }
  write_rows(block, total);
}

}  // namespace
}  // namespace assay::backend::cpu
