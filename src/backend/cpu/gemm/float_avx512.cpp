// Matrix products in floats by AVX-512: Lanes32 is two registers.
#include "backend/cpu/gemm/float_tiles.h"
#include "backend/cpu/gemm/float_vector.h"
#include "backend/cpu/gemv/decode_rows.h"

namespace assay::backend::cpu {
namespace {

struct Vector512 {
  using Reg = __m512;
  using Partial = __m512;
  static constexpr int kWidth = 16, kTileTokens = 6;
  static constexpr int64_t kPanelBytes = 768 * 1024;
  static __mmask16 first(int64_t n) noexcept {
    return static_cast<__mmask16>(n >= 16 ? 0xFFFF : n > 0 ? (1 << n) - 1 : 0);
  }
  static Reg zero() noexcept { return _mm512_setzero_ps(); }
  static Reg load(const float* p) noexcept { return _mm512_loadu_ps(p); }
  static Reg load_first(const float* p, int64_t n) noexcept { return _mm512_maskz_loadu_ps(first(n), p); }
  static Reg fma(Reg a, Reg b, Reg c) noexcept { return _mm512_fmadd_ps(a, b, c); }
  static Reg keep_first(Reg a, Reg b, int64_t n) noexcept { return _mm512_mask_mov_ps(b, first(n), a); }
  static void hold(Reg& sum) noexcept { asm("" : "+v"(sum)); }
  static Partial fold(const Reg* lanes) noexcept { return _mm512_add_ps(lanes[0], lanes[1]); }

  // Two registers to one: 128-bit parts selected by kFirst and by kSecond, added.
  template <int kFirst, int kSecond>
  static __m512 add_parts(__m512 a, __m512 b) noexcept {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, kFirst), _mm512_shuffle_f32x4(a, b, kSecond));
  }
  static __m256 fold_8(const Partial* v) noexcept {
    __m512 eights[4], fours[2];
    for (int i = 0; i < 4; ++i) eights[i] = add_parts<0x44, 0xEE>(v[2 * i], v[2 * i + 1]);           // two parts each
    for (int i = 0; i < 2; ++i) fours[i] = add_parts<0x88, 0xDD>(eights[2 * i], eights[2 * i + 1]);  // one each
    const __m512 twos =
        _mm512_add_ps(_mm512_shuffle_ps(fours[0], fours[1], 0x44), _mm512_shuffle_ps(fours[0], fours[1], 0xEE));
    const __m512 ones =
        _mm512_add_ps(twos, _mm512_permute_ps(twos, 0xB1));  // part i: number i twice, number i + 4 twice
    const __m512i order = _mm512_castsi256_si512(_mm256_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14));
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, ones));
  }
};

__m512 widen_16_halves(const std::byte* p) noexcept {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
__m512 widen_16_bf16(const std::byte* p) noexcept {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

}  // namespace

void float_rows_avx512(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  float_rows<Vector512>(task, find_decode(task.format->dtype), row_begin, row_end, scratch);
}

size_t float_scratch_bytes_avx512(const LinearTask& task) noexcept { return float_scratch_bytes<Vector512>(task); }

GemmKernel float_vector_avx512(tensor::DType dtype) noexcept {
  return find_float_vector<Vector512, &widen_16_halves, &widen_16_bf16>(dtype);
}

}  // namespace assay::backend::cpu
