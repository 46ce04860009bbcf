// Matrix-matrix products by NEON with the matrix instruction of I8MM: smmla multiplies 8 elements of 2 rows with 8
// elements of 2 columns.
#include "backend/cpu/gemm/gemm_neon.h"

namespace assay::backend::cpu {
namespace {

struct MatrixProduct {
  static int8x16_t zip_halves(int8x16_t a, int8x16_t b, int half) noexcept {
    const int64x2_t x = vreinterpretq_s64_s8(a), y = vreinterpretq_s64_s8(b);
    return vreinterpretq_s8_s64(half == 0 ? vzip1q_s64(x, y) : vzip2q_s64(x, y));
  }

  // [pair of rows][8 elements of both, then the next 8]
  static void pack(const int8x16_t* rows, int8_t* out) noexcept {
    for (int pair = 0; pair < 4; ++pair) {
      for (int half = 0; half < 2; ++half)
        vst1q_s8(out + 32 * pair + 16 * half, zip_halves(rows[2 * pair], rows[2 * pair + 1], half));
    }
  }

  // sum[4 * pair of columns + pair of rows], each of its two rows with both columns
  static void add(const int8_t* w, const int8_t* const* x, Sums& sum) noexcept {
    for (int columns = 0; columns < 2; ++columns) {
      const int8x16_t a = vld1q_s8(x[2 * columns]), b = vld1q_s8(x[2 * columns + 1]);
      const int8x16_t v[] = {zip_halves(a, b, 0), zip_halves(a, b, 1)};
      for (int pair = 0; pair < 4; ++pair) {
        int32x4_t& s = sum.v[4 * columns + pair];
        for (int half = 0; half < 2; ++half) s = vmmlaq_s32(s, vld1q_s8(w + 32 * pair + 16 * half), v[half]);
      }
    }
  }

  static constexpr int kScaleRegisters = 4;
  static void spread(int32_t value, int row, int32_t* out) noexcept { out[2 * row] = out[2 * row + 1] = value; }
  static Ints8 column(const Sums& sum, int c) noexcept {
    const int32x4_t* s = sum.v + 4 * (c / 2);
    if (c % 2 == 0) return {vuzp1q_s32(s[0], s[1]), vuzp1q_s32(s[2], s[3])};
    return {vuzp2q_s32(s[0], s[1]), vuzp2q_s32(s[2], s[3])};
  }
};

}  // namespace

GemmKernel gemm_neon_i8mm(const LinearTask& task) noexcept { return find_gemm<MatrixProduct>(task); }

}  // namespace assay::backend::cpu
