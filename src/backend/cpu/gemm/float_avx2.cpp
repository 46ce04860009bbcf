// Matrix products in floats by AVX2 and FMA: Lanes32 is four registers.
#include "backend/cpu/gemm/float_tiles.h"
#include "backend/cpu/gemm/float_vector.h"
#include "backend/cpu/gemv/decode_rows.h"

namespace assay::backend::cpu {
namespace {

struct Vector256 {
  using Reg = __m256;
  static constexpr int kWidth = 8, kTileTokens = 3;
  static constexpr int64_t kPanelBytes = 384 * 1024;
  static __m256i first(int64_t n) noexcept {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(smaller(n, 8))),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Reg zero() noexcept { return _mm256_setzero_ps(); }
  static Reg load(const float* p) noexcept { return _mm256_loadu_ps(p); }
  static Reg load_first(const float* p, int64_t n) noexcept { return _mm256_maskload_ps(p, first(n)); }
  static Reg fma(Reg a, Reg b, Reg c) noexcept { return _mm256_fmadd_ps(a, b, c); }
  static Reg keep_first(Reg a, Reg b, int64_t n) noexcept {
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(first(n)));
  }
  static void hold(Reg& sum) noexcept { asm("" : "+x"(sum)); }
  using Partial = __m256;
  static Partial fold(const Reg* lanes) noexcept {
    return _mm256_add_ps(_mm256_add_ps(lanes[0], lanes[2]), _mm256_add_ps(lanes[1], lanes[3]));
  }
  static __m256 fold_8(const Partial* v) noexcept {
    __m256 fours[4], twos[2];
    for (int i = 0; i < 4; ++i) {  // number i in the lower half, i + 4 in the upper
      fours[i] =
          _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20), _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
    }
    for (int i = 0; i < 2; ++i) {
      const __m256 a = fours[2 * i], b = fours[2 * i + 1];
      twos[i] = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xEE));
    }
    return _mm256_add_ps(_mm256_shuffle_ps(twos[0], twos[1], 0x88), _mm256_shuffle_ps(twos[0], twos[1], 0xDD));
  }
};

}  // namespace

void float_rows_avx2(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  float_rows<Vector256>(task, find_decode(task.format->dtype), row_begin, row_end, scratch);
}

size_t float_scratch_bytes_avx2(const LinearTask& task) noexcept { return float_scratch_bytes<Vector256>(task); }

GemmKernel float_vector_avx2(tensor::DType dtype) noexcept {
  return find_float_vector<Vector256, &widen_half, &widen_bf16>(dtype);
}

}  // namespace assay::backend::cpu
