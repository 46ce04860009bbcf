// One token's product with short rows of the formats with blocks of 32 and 4, 5 or 8 bits, by AVX-512 VNNI: 16 to 32
// blocks a row, an even number of them. Such rows end after two to four steps of gemv.h's kernels, and what a row costs
// beside its steps is then a third of all. Here blocks are taken 16 at a time as they lie in the file, over the ends of
// rows; only the chains and the tree go row by row.
//
//   rows of 18 blocks  | row 0     | row 1     | ..   | row 7     |    group_rows: 8, or 4 where rows are whole quads
//   16 blocks          |---------|---------|--- ..      ---------|     4 quads -> 16 integers -> 16 terms, in order
//   behind the last    terms of a row, lanes by chunk and step -> its 8 chains -> the trees of 4 rows at once
#include <algorithm>
#include <cstring>
#include <new>

#include "backend/cpu/gemv/gemv_prepare.h"
#include "backend/cpu/gemv/gemv_short.h"
#include "backend/cpu/gemv/sixteen_blocks_avx512.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kBlocksMin = 16, kBlocksMax = 32, kStepsMax = kBlocksMax / kLanes;

struct ShortOperand {
  alignas(64) int8_t q[quads_laid_out(kBlocksMax - 2) * 2 * 2 * 64];
  alignas(64) int32_t places[kStepsMax][16];  // of a step's lanes among a row's terms; the upper half counts not
  alignas(64) float d[kStepsMax][kLanes];
  alignas(64) int32_t sums[kBlocksMax + kTogether];
  alignas(64) float g[kBlocksMax + kTogether];
  BlockActivations blocks;  // of these arrays
  int64_t full_steps, steps;
  __mmask8 last_mask;
};
static_assert(quads_laid_out(kBlocksMax - 2) >= quads_laid_out(kBlocksMax));

template <class Format, int kPlanes>
void lay_out(const LinearTask& task, ShortOperand& out) noexcept {
  const quant::Activations& x = task.x;
  const GemvChain chain = gemv_chain(task.k / 32);
  out.blocks.q = out.q;
  out.blocks.sums = out.sums;
  out.blocks.g = out.g;
  lay_out_blocks<Format, kPlanes>(task, out.blocks);
  out.full_steps = chain.full_steps;
  out.steps = chain.steps;
  out.last_mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (chain.last_mask[lane] != 0) out.last_mask = static_cast<__mmask8>(out.last_mask | 1 << lane);
    for (int64_t step = 0; step < out.steps; ++step) {
      const bool is_there = step < out.full_steps || chain.last_mask[lane] != 0;
      const int64_t block = is_there ? chain.first[lane] + step : 0;
      out.places[step][lane] = static_cast<int32_t>(block);
      out.places[step][lane + kLanes] = 0;
      out.d[step][lane] = is_there ? x.d[block] : 0.0f;
    }
  }
}

// The chains of a row from its terms. Behind these there is something to read.
[[gnu::always_inline]] inline __m256 chains_of_row(const ShortOperand& x, const float* terms) noexcept {
  const __m512 low = _mm512_loadu_ps(terms), high = _mm512_loadu_ps(terms + 16);
  const auto step_terms = [&](int64_t step) __attribute__((always_inline)) {
    return _mm512_castps512_ps256(_mm512_permutex2var_ps(low, _mm512_load_si512(x.places[step]), high));
  };
  __m256 c = _mm256_setzero_ps();
  for (int64_t step = 0; step < x.full_steps; ++step)
    c = _mm256_fmadd_ps(_mm256_load_ps(x.d[step]), step_terms(step), c);
  if (x.full_steps == x.steps) return c;
  return _mm256_mask3_fmadd_ps(_mm256_load_ps(x.d[x.full_steps]), step_terms(x.full_steps), c, x.last_mask);
}

// The dots of group_rows rows.
template <class Format, int kPlanes>
[[gnu::always_inline]] inline void run_group(const ShortOperand& x, int64_t n_rows, const std::byte* rows,
                                             float* out) noexcept {
  alignas(64) float terms[kGroupMax * kBlocksMax + kTogether];
  terms_of_blocks<Format, kPlanes>(x.blocks, n_rows * x.blocks.n_blocks, rows, terms);
  for (int64_t row = 0; row < n_rows; row += 4) {
    __m256 c[4];
    for (int i = 0; i < 4; ++i) c[i] = chains_of_row(x, terms + (row + i) * x.blocks.n_blocks);
    _mm_storeu_ps(out + row, trees(c));
  }
}

template <class Format, int kPlanes>
void short_rows(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  const ShortOperand& x = *reinterpret_cast<const ShortOperand*>(scratch);
  const int64_t group = group_rows(x.blocks.n_blocks);
  for (int64_t r = row_begin; r < row_end; r += group) {
    const int64_t n = std::min(group, row_end - r);
    const std::byte* rows = task.weights + r * task.row_bytes;
    // Behind the last rows there may be no memory.
    std::byte copy[kGroupMax * kBlocksMax * Format::kBlockBytes];
    if (n < group) {
      std::memcpy(copy, rows, static_cast<size_t>(n * task.row_bytes));
      std::memset(copy + n * task.row_bytes, 0, static_cast<size_t>((group - n) * task.row_bytes));
      rows = copy;
    }
    float dots[kGroupMax];
    run_group<Format, kPlanes>(x, group, rows, dots);
    for (int64_t i = 0; i < n; ++i) task.y.data[r + i] = task.bias == nullptr ? dots[i] : dots[i] + task.bias[r + i];
  }
}

template <class Format, int kPlanes>
void lay_out_and_run(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  lay_out<Format, kPlanes>(task, *new (scratch) ShortOperand);
  short_rows<Format, kPlanes>(task, row_begin, row_end, scratch);
}

template <class Format>
GemmKernel kernel_of(const LinearTask& task) noexcept {
  constexpr auto bytes = [](const LinearTask&) noexcept { return sizeof(ShortOperand); };
  const int64_t step = group_rows(task.k / 32);
  if (task.x.planes == 2) return {&lay_out_and_run<Format, 2>, bytes, step, &short_rows<Format, 2>};
  return {&lay_out_and_run<Format, 1>, bytes, step, &short_rows<Format, 1>};
}

}  // namespace

GemmKernel gemv_short_avx512(const LinearTask& task) noexcept {
  const int64_t n_blocks = task.k / 32;
  if (n_blocks < kBlocksMin || n_blocks > kBlocksMax || n_blocks % 2 != 0) return {};
  return with_sixteen(task.format->dtype, [&]<class Format>(Format) { return kernel_of<Format>(task); });
}

}  // namespace assay::backend::cpu
