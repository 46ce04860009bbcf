// Matrix-matrix products by NEON with the dot product instruction: sdot multiplies 4 elements of 4 rows with 4 elements
// of one column.
#include "backend/cpu/gemm/gemm_neon.h"

namespace assay::backend::cpu {
namespace {

struct DotProduct {
  // [rows 0..3, rows 4..7][4 elements of each, then the next 4]
  static void pack(const int8x16_t* rows, int8_t* out) noexcept {
    for (int h = 0; h < 2; ++h) {
      const auto row = [&](int i) { return vreinterpretq_s32_s8(rows[4 * h + i]); };
      const auto wide = [](int32x4_t v) { return vreinterpretq_s64_s32(v); };
      const int64x2_t ab[] = {wide(vzip1q_s32(row(0), row(1))), wide(vzip2q_s32(row(0), row(1)))};
      const int64x2_t cd[] = {wide(vzip1q_s32(row(2), row(3))), wide(vzip2q_s32(row(2), row(3)))};
      for (int i = 0; i < 2; ++i) {
        vst1q_s8(out + 64 * h + 32 * i, vreinterpretq_s8_s64(vzip1q_s64(ab[i], cd[i])));
        vst1q_s8(out + 64 * h + 32 * i + 16, vreinterpretq_s8_s64(vzip2q_s64(ab[i], cd[i])));
      }
    }
  }

  // sum[2 * column + half of the rows]
  static void add(const int8_t* w, const int8_t* const* x, Sums& sum) noexcept {
    for (int h = 0; h < 2; ++h) {
      const int8x16_t w0 = vld1q_s8(w + 64 * h), w1 = vld1q_s8(w + 64 * h + 16), w2 = vld1q_s8(w + 64 * h + 32),
                      w3 = vld1q_s8(w + 64 * h + 48);
      for (int column = 0; column < kColumns; ++column) {
        const int8x16_t v = vld1q_s8(x[column]);
        int32x4_t& s = sum.v[2 * column + h];
        s = vdotq_laneq_s32(s, w0, v, 0);
        s = vdotq_laneq_s32(s, w1, v, 1);
        s = vdotq_laneq_s32(s, w2, v, 2);
        s = vdotq_laneq_s32(s, w3, v, 3);
      }
    }
  }

  static constexpr int kScaleRegisters = 2;
  static void spread(int32_t value, int row, int32_t* out) noexcept { out[row] = value; }
  static Ints8 column(const Sums& sum, int c) noexcept { return {sum.v[2 * c], sum.v[2 * c + 1]}; }
};

}  // namespace

GemmKernel gemm_neon(const LinearTask& task) noexcept { return find_gemm<DotProduct>(task); }

}  // namespace assay::backend::cpu
