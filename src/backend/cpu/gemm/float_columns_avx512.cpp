// Matrix products in floats for many tokens, by AVX-512: contract dot/1 with Lanes32 in each of the 8 chunks. 32 rows
// are the lanes of two registers and the lanes of the contract come one after the other: the sum of a lane is a chain
// over its elements, and the fold 16, 8, 4, 2, 1 is an addition of whole registers, once for every chain, where lanes
// that lie side by side need shuffles. float_tiles.h has the loops for few tokens.
#include "backend/cpu/gemm/gemm_loops_avx512.h"
#include "backend/cpu/gemv/decode_rows.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kStripRows = 2 * kRows;
constexpr int kTokens = 12;  // of a tile
constexpr int kLaneCount = 32;
constexpr int64_t kLaidBytes =
    4 * 1024 * 1024;  // what the laid tokens may take; those beyond unpack the weights once more

// When a lane has its turn: so that the sums of lanes l and l + 16 meet, then those with l + 8 and l + 24, and so on,
// as a counter carries.
constexpr int turn_of(int lane) noexcept {
  return (lane & 1) << 4 | (lane & 2) << 2 | (lane & 4) | (lane & 8) >> 2 | (lane & 16) >> 4;
}

// A chunk of the contract: elements 32 * begin .. 32 * end - 1, the same as steps of every lane.
struct Chunk {
  Chunk(int i, int64_t k) noexcept : begin(i * (k / kLaneCount) / 8), end((i + 1) * (k / kLaneCount) / 8) {}
  int64_t steps() const noexcept { return end - begin; }
  int64_t begin, end;
};

// Rows of f32, in the file or decoded. place(i): which of 32 rows is pointer i. columns(..): elements `at`.. of the
// rows to two registers each.
struct Floats {
  static constexpr int kColumns = 4;
  static constexpr int64_t place(int64_t i) noexcept { return i; }
  static void columns(const std::byte* const* rows, int64_t at, __m512 (*out)[2]) noexcept {
    for (int g = 0; g < 2; ++g) {
      __m512i dwords[4];
      transpose_dwords(rows + g * kRows, 4 * at, dwords);
      for (int i = 0; i < 4; ++i) out[i][g] = _mm512_castsi512_ps(dwords[i]);
    }
  }
};

inline __m512 widen_halves(__m256i halves) noexcept { return _mm512_cvtph_ps(halves); }
inline __m512 widen_bf16s(__m256i words) noexcept {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

// Rows of 16 bits an element. Even and odd rows are transposed by pairs of elements and then mixed, which puts an
// element of all rows in order.
template <__m512 (*widen)(__m256i)>
struct Words {
  static constexpr int kColumns = 8;
  static constexpr int64_t place(int64_t i) noexcept { return i % kRows * 2 + i / kRows; }
  static void columns(const std::byte* const* rows, int64_t at, __m512 (*out)[2]) noexcept {
    constexpr __mmask32 kOdd = 0xAAAAAAAA;
    __m512i even[4], odd[4];
    transpose_dwords(rows, 2 * at, even);
    transpose_dwords(rows + kRows, 2 * at, odd);
    const auto put = [&](int column, __m512i words) {
      out[column][0] = widen(_mm512_castsi512_si256(words));
      out[column][1] = widen(_mm512_extracti64x4_epi64(words, 1));
    };
    for (int i = 0; i < 4; ++i) {
      put(2 * i, _mm512_mask_blend_epi16(kOdd, even[i], _mm512_slli_epi32(odd[i], 16)));
      put(2 * i + 1, _mm512_mask_blend_epi16(kOdd, _mm512_srli_epi32(even[i], 16), odd[i]));
    }
  }
};

// panel: [turn][step][32 rows]
template <class Rows>
void build_panel(const std::byte* const* rows_in_order, const Chunk& chunk, float* panel) noexcept {
  const std::byte* rows[kStripRows];
  for (int64_t i = 0; i < kStripRows; ++i) rows[i] = rows_in_order[Rows::place(i)];
  for (int64_t step = 0; step < chunk.steps(); ++step) {
    for (int lane = 0; lane < kLaneCount; lane += Rows::kColumns) {
      __m512 columns[Rows::kColumns][2];
      Rows::columns(rows, (chunk.begin + step) * kLaneCount + lane, columns);
      for (int i = 0; i < Rows::kColumns; ++i) {
        float* out = panel + (turn_of(lane + i) * chunk.steps() + step) * kStripRows;
        _mm512_store_ps(out, columns[i][0]);
        _mm512_store_ps(out + kRows, columns[i][1]);
      }
    }
  }
}

// laid: [turn][step][kTokens]
void lay_tokens(const LinearTask& task, int64_t token, int64_t n, const Chunk& chunk, float* laid) noexcept {
  const std::byte* rows[kRows];
  for (int64_t t = 0; t < kRows; ++t)
    rows[t] = reinterpret_cast<const std::byte*>(task.x_f32.row(token + smaller(t, n - 1)));
  for (int64_t step = 0; step < chunk.steps(); ++step) {
    for (int lane = 0; lane < kLaneCount; lane += 4) {
      __m512i columns[4];
      transpose_dwords(rows, 4 * ((chunk.begin + step) * kLaneCount + lane), columns);
      for (int i = 0; i < 4; ++i) {
        float* out = laid + (turn_of(lane + i) * chunk.steps() + step) * kTokens;
        _mm512_mask_storeu_ps(out, first_lanes(kTokens), _mm512_castsi512_ps(columns[i]));
      }
    }
  }
}

#define ASSAY_IF_USED(token, text) ".if " #token " < %c[used]\n" text ".endif\n"  // in a tile of fewer tokens
// The registers of a tile in the assembler text below: token, its element, its sums with the first and the second 16
// rows.
#define ASSAY_TOKENS_LOW(X) \
  X(0, 2, 8, 20) X(1, 3, 9, 21) X(2, 4, 10, 22) X(3, 5, 11, 23) X(4, 6, 12, 24) X(5, 7, 13, 25)
#define ASSAY_TOKENS_HIGH(X) \
  X(6, 2, 14, 26) X(7, 3, 15, 27) X(8, 4, 16, 28) X(9, 5, 17, 29) X(10, 6, 18, 30) X(11, 7, 19, 31)
#define ASSAY_TOKENS(X) ASSAY_TOKENS_LOW(X) ASSAY_TOKENS_HIGH(X)
#define ASSAY_CLEAR(token, x, a, b)                                \
  ASSAY_IF_USED(token, "vpxord %%zmm" #a ", %%zmm" #a ", %%zmm" #a \
                       "\n"                                        \
                       "vpxord %%zmm" #b ", %%zmm" #b ", %%zmm" #b "\n")
#define ASSAY_LOAD(token, x, a, b) ASSAY_IF_USED(token, "vbroadcastss 4 * " #token "(%[laid]), %%zmm" #x "\n")
#define ASSAY_FMA(token, x, a, b)                                  \
  ASSAY_IF_USED(token, "vfmadd231ps %%zmm" #x ", %%zmm0, %%zmm" #a \
                       "\n"                                        \
                       "vfmadd231ps %%zmm" #x ", %%zmm1, %%zmm" #b "\n")
#define ASSAY_ADD(token, x, a, b)                                                      \
  ASSAY_IF_USED(token, "vaddps \\at + 64 * " #token "(%[sums]), %%zmm" #a ", %%zmm" #a \
                       "\n"                                                            \
                       "vaddps \\at + 768 + 64 * " #token "(%[sums]), %%zmm" #b ", %%zmm" #b "\n")
#define ASSAY_STORE(token, x, a, b)                        \
  ASSAY_IF_USED(token, "vmovaps %%zmm" #a ", 64 * " #token \
                       "(%[to])\n"                         \
                       "vmovaps %%zmm" #b ", 768 + 64 * " #token "(%[to])\n")

// Sums of a tile: two groups of rows.
struct alignas(64) Sums {
  float of[2][kTokens][kRows];
};

// The chain of the lane whose turn it is; it meets the sums that wait on kCarries levels. In assembler because
// compilers spill the 24 sums.
template <int kUsed, int kCarries>
inline void run_lane(const float*& panel, const float*& laid, int64_t steps, const Sums* waiting, Sums& to) noexcept {
  static_assert(sizeof(Sums) == 1536);
  asm volatile(ASSAY_TOKENS(ASSAY_CLEAR)
               ".p2align 5\n1:\n"
               "vmovaps (%[panel]), %%zmm0\nvmovaps 64(%[panel]), %%zmm1\n"
               ASSAY_TOKENS_LOW(ASSAY_LOAD)
               ASSAY_TOKENS_LOW(ASSAY_FMA)
               ASSAY_TOKENS_HIGH(ASSAY_LOAD)
               ASSAY_TOKENS_HIGH(ASSAY_FMA)
               "addq $128, %[panel]\naddq $48, %[laid]\n"
               "decq %[steps]\njnz 1b\n"
               ".irp at, 0, 1536\n.if \\at < 1536 * %c[carries]\n"
               ASSAY_TOKENS(ASSAY_ADD)
               ".endif\n.endr\n"
               ASSAY_TOKENS(ASSAY_STORE)
               : [panel] "+r"(panel), [laid] "+r"(laid), [steps] "+r"(steps)
               : [sums] "r"(waiting), [to] "r"(&to), [used] "i"(kUsed), [carries] "i"(kCarries)
               : "memory", "cc", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12", "zmm13",
                 "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27",
                 "zmm28", "zmm29", "zmm30", "zmm31");
}

// One chunk of 32 rows and kUsed tokens.
template <int kUsed>
void run_chunk(const Step& step, const float* panel, const float* laid, int64_t steps, int64_t token,
               Levels<kTokens>& levels) noexcept {
  Sums waiting[2], quads[kLaneCount / 4];  // of one lane and of two; of four
  for (Sums& quad : quads) {
    if (steps == 0) break;
    run_lane<kUsed, 0>(panel, laid, steps, waiting, waiting[0]);
    run_lane<kUsed, 1>(panel, laid, steps, waiting, waiting[1]);
    run_lane<kUsed, 0>(panel, laid, steps, waiting, waiting[0]);
    run_lane<kUsed, 2>(panel, laid, steps, waiting, quad);
  }
  for (int g = 0; g < 2; ++g) {
    __m512 c[kUsed];
    for (int t = 0; t < kUsed; ++t) {
      const auto pair = [&](int i) {
        return _mm512_add_ps(_mm512_load_ps(quads[i].of[g][t]), _mm512_load_ps(quads[i + 1].of[g][t]));
      };
      c[t] = steps == 0 ? _mm512_setzero_ps()
                        : _mm512_add_ps(_mm512_add_ps(pair(0), pair(2)), _mm512_add_ps(pair(4), pair(6)));
    }
    keep(step, token, g, c, levels);
  }
}

using RunChunk = void (*)(const Step&, const float*, const float*, int64_t, int64_t, Levels<kTokens>&) noexcept;

template <int... kMinusOne>
constexpr std::array<RunChunk, sizeof...(kMinusOne)> run_chunks(std::integer_sequence<int, kMinusOne...>) noexcept {
  return {&run_chunk<kMinusOne + 1>...};
}

class Columns {
 public:
  Columns(const LinearTask& task, std::byte* scratch) noexcept
      : task_(task), decode_(decode_of(task)), levels_(reinterpret_cast<Levels<kTokens>*>(scratch)),
        panel_(reinterpret_cast<float*>(levels_ + tiles_max(task))), decoded_(panel_ + panel_floats(task.k)),
        laid_(decoded_ + decoded_floats(task)) {}

  static size_t scratch_bytes(const LinearTask& task) noexcept {
    const int64_t floats = panel_floats(task.k) + decoded_floats(task) + tiles_max(task) * kTokens * task.k;
    return static_cast<size_t>(tiles_max(task)) * sizeof(Levels<kTokens>) + static_cast<size_t>(floats) * sizeof(float);
  }

  void run(int64_t row_begin, int64_t row_end) noexcept {
    const int64_t passes = divide_up(task_.n_tokens, tiles_max(task_) * kTokens);
    for (int64_t pass = 0; pass < passes; ++pass) {
      tiles_ = Tiles<kTokens>(pass * task_.n_tokens / passes, (pass + 1) * task_.n_tokens / passes);
      for (int i = 0; i < 8; ++i) {
        const Chunk chunk(i, task_.k);
        tiles_.for_each(
            [&](int64_t tile, int64_t token, int64_t n) { lay_tokens(task_, token, n, chunk, laid(chunk, tile)); });
      }
      for (int64_t row = row_begin; row < row_end; row += kStripRows) run_strip(row, row_end);
    }
  }

 private:
  static DecodeRow decode_of(const LinearTask& task) noexcept {
    using tensor::DType;
    const DType dtype = task.format->dtype;
    return dtype == DType::F16 || dtype == DType::BF16 ? nullptr : find_decode(dtype);
  }
  static int64_t tiles_max(const LinearTask& task) noexcept {  // of a pass
    return smaller(larger(1, kLaidBytes / (kTokens * task.k * 4)), divide_up(task.n_tokens, kTokens));
  }
  static int64_t panel_floats(int64_t k) noexcept { return divide_up(k / kLaneCount, 8) * kLaneCount * kStripRows; }
  static int64_t decoded_stride(int64_t k) noexcept {
    return k + 16;
  }  // rows do not begin at the same place of the first-level cache
  static int64_t decoded_floats(const LinearTask& task) noexcept {
    return decode_of(task) == nullptr ? 0 : kStripRows * decoded_stride(task.k);
  }

  float* laid(const Chunk& chunk, int64_t tile) const noexcept {
    return laid_ + (chunk.begin * tiles_.count() + tile * chunk.steps()) * kLaneCount * kTokens;
  }

  void run_strip(int64_t row, int64_t row_end) noexcept {
    static constexpr auto kRun = run_chunks(std::make_integer_sequence<int, kTokens>());
    const std::byte* rows[kStripRows];
    rows_of_group<kStripRows>(task_, row, row_end, rows);
    for (int64_t i = 0; i < kStripRows && decode_ != nullptr; ++i) {
      float* of_row = decoded_ + i * decoded_stride(task_.k);
      decode_(task_, rows[i], of_row);
      rows[i] = reinterpret_cast<const std::byte*>(of_row);
    }
    for (int i = 0; i < 8; ++i) {
      const Chunk chunk(i, task_.k);
      build(rows, chunk);
      const Step step{task_, row, row_end, i, true, true};
      const int64_t next_row = i < 7 ? row : row + kStripRows, next_step = i < 7 ? chunk.end : 0;
      const std::byte* next =
          task_.weights + next_row * task_.row_bytes + next_step * task_.row_bytes / (task_.k / kLaneCount);
      tiles_.for_each([&](int64_t tile, int64_t token, int64_t n) {
        if (decode_ == nullptr) fetch_part(next, task_.row_bytes / 8, task_.row_bytes, tile, tiles_.count());
        kRun[static_cast<size_t>(n - 1)](step, panel_, laid(chunk, tile), chunk.steps(), token, levels_[tile]);
      });
    }
  }

  void build(const std::byte* const* rows, const Chunk& chunk) const noexcept {
    if (task_.format->dtype == tensor::DType::F16) {
      build_panel<Words<widen_halves>>(rows, chunk, panel_);
    } else if (task_.format->dtype == tensor::DType::BF16) {
      build_panel<Words<widen_bf16s>>(rows, chunk, panel_);
    } else {
      build_panel<Floats>(rows, chunk, panel_);
    }
  }

  const LinearTask& task_;
  const DecodeRow decode_;         // null: rows are read where they lie
  Levels<kTokens>* const levels_;  // [tiles]
  float* const panel_;             // of a chunk
  float* const decoded_;           // 32 rows
  float* const laid_;              // [chunks][tiles]
  Tiles<kTokens> tiles_;
};

}  // namespace

void float_columns_avx512(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  Columns(task, scratch).run(row_begin, row_end);
}

size_t float_columns_scratch_bytes_avx512(const LinearTask& task) noexcept { return Columns::scratch_bytes(task); }

}  // namespace assay::backend::cpu
