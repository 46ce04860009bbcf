// Matrix products in floats by AVX-512: Lanes32 is two registers.
#include "backend/cpu/float_tiles.h"

namespace assay::backend::cpu {
namespace {

struct Vector512 {
  using Reg = __m512;
  static constexpr int kWidth = 16;
  static __mmask16 first(int64_t n) noexcept { return static_cast<__mmask16>(n >= 16 ? 0xFFFF : (1 << n) - 1); }
  static Reg zero() noexcept { return _mm512_setzero_ps(); }
  static Reg load(const float* p) noexcept { return _mm512_loadu_ps(p); }
  static Reg load_first(const float* p, int64_t n) noexcept { return _mm512_maskz_loadu_ps(first(n), p); }
  static Reg fma(Reg a, Reg b, Reg c) noexcept { return _mm512_fmadd_ps(a, b, c); }
  static Reg keep_first(Reg a, Reg b, int64_t n) noexcept { return _mm512_mask_mov_ps(b, first(n), a); }
  static __m256 fold_to_8(const Reg* lanes) noexcept {
    const Reg sum = _mm512_add_ps(lanes[0], lanes[1]);
    return _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
  }
};

}  // namespace

void float_rows_avx512(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  float_rows<Vector512, 6>(task, find_decode(task.format->dtype), row_begin, row_end, scratch);
}

size_t float_scratch_bytes_avx512(const LinearTask& task) noexcept { return float_scratch_bytes(task); }

}  // namespace assay::backend::cpu
