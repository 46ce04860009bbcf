// One token's product with rows of more than 32 blocks of the formats with blocks of 32 and 4, 5 or 8 bits, by AVX-512
// VNNI, an even number of them: blocks 16 at a time as they lie in the file (sixteen_blocks_avx512.h), a group of rows
// together; then the chains of two rows at a time.
//
//   terms of 4 rows    | row 0: chunk 0 | chunk 1 | .. | chunk 7 | row 1 ..    8 rows where rows are no whole quads
//   8 steps of 2 rows    8 registers, one for a chunk: its terms of one row | of the other
//   transposed           8 registers, one for a step: chunks 0..3 of both rows | chunks 4..7 of both -> one fma each
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "backend/cpu/gemv/gemv_prepare.h"
#include "backend/cpu/gemv/gemv_short.h"
#include "backend/cpu/gemv/sixteen_blocks_avx512.h"
#include "base/round_up.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kBlocksMin = 34;
constexpr int64_t kTurn = 8;  // steps that are transposed together

// Its arrays lie behind it, each aligned to 64.
struct LongOperand {
  BlockActivations blocks;
  float* d;         // [steps, whole turns][16]: chunks 0..3 twice, then chunks 4..7 twice
  float* terms;     // of a group, and a turn more
  std::byte* rows;  // of a group, where fewer are left
  int64_t first[kLanes];
  int64_t whole_turns;  // steps of the turns in which every lane has a block
  int64_t steps;
  __mmask16 masks[kTurn];  // lanes of the steps behind these
};

struct LongSizes {
  size_t q, sums, d, terms, rows;
};
LongSizes sizes_of(const LinearTask& task) noexcept {
  const int64_t n = task.k / 32, group = group_rows(n), steps = (n + kLanes - 1) / kLanes;
  const auto bytes = [](int64_t count) { return base::round_up(static_cast<size_t>(count), 64); };
  return {bytes(quads_laid_out(n) * task.x.planes * 128), bytes((n + kTogether) * 4), bytes((steps + kTurn) * 16 * 4),
          bytes((group * n + kTogether) * 4), bytes(group * task.row_bytes)};
}
size_t scratch_bytes(const LinearTask& task) noexcept {
  const LongSizes sizes = sizes_of(task);
  return base::round_up(sizeof(LongOperand), 64) + sizes.q + 2 * sizes.sums + sizes.d + sizes.terms + sizes.rows;
}

// The lane of a step's register at which a chunk's number stands, for the first row; the second row's is 4 behind.
constexpr int lane_of_chunk(int chunk) noexcept { return chunk % 4 + chunk / 4 * 8; }

template <class Format, int kPlanes>
void lay_out(const LinearTask& task, std::byte* scratch) noexcept {
  LongOperand& out = *new (scratch) LongOperand;
  const LongSizes sizes = sizes_of(task);
  std::byte* at = scratch + base::round_up(sizeof(LongOperand), 64);
  const auto next = [&](size_t bytes) { return std::exchange(at, at + bytes); };
  out.blocks.q = reinterpret_cast<int8_t*>(next(sizes.q));
  out.blocks.sums = reinterpret_cast<int32_t*>(next(sizes.sums));
  out.blocks.g = reinterpret_cast<float*>(next(sizes.sums));
  out.d = reinterpret_cast<float*>(next(sizes.d));
  out.terms = reinterpret_cast<float*>(next(sizes.terms));
  out.rows = next(sizes.rows);
  lay_out_blocks<Format, kPlanes>(task, out.blocks);
  const GemvChain chain = gemv_chain(task.k / 32);
  out.steps = chain.steps;
  out.whole_turns = chain.full_steps / kTurn * kTurn;
  std::fill_n(out.masks, kTurn, __mmask16{0});
  std::fill_n(out.d, (chain.steps + kTurn) * 16, 0.0f);
  for (int chunk = 0; chunk < kLanes; ++chunk) {
    out.first[chunk] = chain.first[chunk];
    const int64_t n = chain.full_steps + (chain.last_mask[chunk] != 0 ? 1 : 0);
    for (const int lane : {lane_of_chunk(chunk), lane_of_chunk(chunk) + 4}) {
      for (int64_t step = 0; step < n; ++step) out.d[step * 16 + lane] = task.x.d[chain.first[chunk] + step];
      for (int64_t step = out.whole_turns; step < n; ++step) {
        __mmask16& mask = out.masks[step - out.whole_turns];
        mask = static_cast<__mmask16>(mask | 1 << lane);
      }
    }
  }
}

// A turn's terms of two rows by steps.
[[gnu::always_inline]] inline void steps_of_turn(const LongOperand& x, const float* first_row, const float* second_row,
                                                 __m512* by_steps) noexcept {
  __m512 quads[2][4];
  for (int half = 0; half < 2; ++half) {
    __m512 z[4];
    for (int i = 0; i < 4; ++i) {
      const int64_t at = x.first[4 * half + i];
      z[i] = _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_loadu_ps(first_row + at)),
                                _mm256_loadu_ps(second_row + at), 1);
    }
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(z[0], z[1])),
                  high01 = _mm512_castps_pd(_mm512_unpackhi_ps(z[0], z[1])),
                  low23 = _mm512_castps_pd(_mm512_unpacklo_ps(z[2], z[3])),
                  high23 = _mm512_castps_pd(_mm512_unpackhi_ps(z[2], z[3]));
    quads[half][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
    quads[half][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
    quads[half][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
    quads[half][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
  }
  for (int i = 0; i < 4; ++i) {
    by_steps[i] = _mm512_shuffle_f32x4(quads[0][i], quads[1][i], 0x88);
    by_steps[4 + i] = _mm512_shuffle_f32x4(quads[0][i], quads[1][i], 0xDD);
  }
}

// The chains of two rows from their terms.
[[gnu::always_inline]] inline void chains_of_rows(const LongOperand& x, const float* terms, __m256* out) noexcept {
  __m512 c = _mm512_setzero_ps(), by_steps[kTurn];
  const float *first_row = terms, *second_row = terms + x.blocks.n_blocks, *d = x.d;
  int64_t step = 0;
  for (; step < x.whole_turns; step += kTurn, d += 16 * kTurn) {
    steps_of_turn(x, first_row + step, second_row + step, by_steps);
    for (int i = 0; i < kTurn; ++i) c = _mm512_fmadd_ps(_mm512_load_ps(d + 16 * i), by_steps[i], c);
  }
  if (step < x.steps) {
    steps_of_turn(x, first_row + step, second_row + step, by_steps);
    for (int i = 0; i < kTurn; ++i) c = _mm512_mask3_fmadd_ps(_mm512_load_ps(d + 16 * i), by_steps[i], c, x.masks[i]);
  }
  c = _mm512_shuffle_f32x4(c, c, 0xD8);
  out[0] = _mm512_castps512_ps256(c);
  out[1] = _mm512_extractf32x8_ps(c, 1);
}

template <class Format, int kPlanes>
void long_rows(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const LongOperand& x = *reinterpret_cast<const LongOperand*>(scratch);
  const int64_t n_blocks = x.blocks.n_blocks, group = group_rows(n_blocks);
  for (int64_t r = row_begin; r < row_end; r += group) {
    const int64_t n = std::min(group, row_end - r);
    const std::byte* rows = task.weights + r * task.row_bytes;
    // Behind the last rows there may be no memory.
    if (n < group) {
      std::memcpy(x.rows, rows, static_cast<size_t>(n * task.row_bytes));
      std::memset(x.rows + n * task.row_bytes, 0, static_cast<size_t>((group - n) * task.row_bytes));
      rows = x.rows;
    }
    terms_of_blocks<Format, kPlanes>(x.blocks, group * n_blocks, rows, x.terms);
    float dots[kGroupMax];
    for (int64_t row = 0; row < group; row += 4) {
      __m256 c[4];
      chains_of_rows(x, x.terms + row * n_blocks, c);
      chains_of_rows(x, x.terms + (row + 2) * n_blocks, c + 2);
      _mm_storeu_ps(dots + row, trees(c));
    }
    for (int64_t i = 0; i < n; ++i) task.y.data[r + i] = task.bias == nullptr ? dots[i] : dots[i] + task.bias[r + i];
  }
}

template <class Format, int kPlanes>
void lay_out_and_run(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  lay_out<Format, kPlanes>(task, scratch);
  long_rows<Format, kPlanes>(task, row_begin, row_end, scratch);
}

template <class Format>
GemmKernel kernel_of(const LinearTask& task) noexcept {
  const int64_t step = group_rows(task.k / 32);
  if (task.x.planes == 2) return {&lay_out_and_run<Format, 2>, &scratch_bytes, step, &long_rows<Format, 2>};
  return {&lay_out_and_run<Format, 1>, &scratch_bytes, step, &long_rows<Format, 1>};
}

}  // namespace

GemmKernel gemv_long_avx512(const LinearTask& task) noexcept {
  const int64_t n_blocks = task.k / 32;
  if (n_blocks < kBlocksMin || n_blocks % 2 != 0) return {};
  return with_sixteen(task.format->dtype, [&]<class Format>(Format) { return kernel_of<Format>(task); });
}

}  // namespace assay::backend::cpu
