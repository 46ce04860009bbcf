// Matrix products in floats by NEON: Lanes32 is four pairs of registers.
#include "backend/cpu/gemm/float_tiles.h"
#include "backend/cpu/gemm/float_vector.h"
#include "backend/cpu/gemv/decode_rows_neon.h"

namespace assay::backend::cpu {
namespace {

struct VectorPair {
  using Reg = Floats8;
  using Partial = Floats8;
  static constexpr int kWidth = 8, kTileTokens = 2;
  static constexpr int64_t kPanelBytes = 384 * 1024;
  static void hold(Reg&) noexcept {}
  static Reg zero() noexcept { return zero_8(); }
  static Reg load(const float* p) noexcept { return load_8(p); }
  static Reg load_first(const float* p, int64_t n) noexcept {
    float lanes[kWidth] = {};
    __builtin_memcpy(lanes, p, static_cast<size_t>(smaller(n, kWidth)) * sizeof(float));
    return load_8(lanes);
  }
  static Reg fma(Reg a, Reg b, Reg c) noexcept { return fma_8(a, b, c); }
  static Reg keep_first(Reg a, Reg b, int64_t n) noexcept {
    int32_t mask[kWidth];
    for (int i = 0; i < kWidth; ++i) mask[i] = i < n ? -1 : 0;
    return choose_8(mask, a, b);
  }
  static Partial fold(const Reg* lanes) noexcept { return add_8(add_8(lanes[0], lanes[2]), add_8(lanes[1], lanes[3])); }
  static Floats8 fold_8(const Partial* v) noexcept {
    float32x4_t twos[4];  // of the numbers 2 i and 2 i + 1, two parts each
    for (int i = 0; i < 4; ++i) {
      const float32x4_t a = vaddq_f32(v[2 * i].low, v[2 * i].high), b = vaddq_f32(v[2 * i + 1].low, v[2 * i + 1].high);
      twos[i] =
          vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)), vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
    }
    return {vpaddq_f32(twos[0], twos[1]), vpaddq_f32(twos[2], twos[3])};
  }
};

}  // namespace

void float_rows_neon(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  float_rows<VectorPair>(task, find_decode(*task.format), row_begin, row_end, scratch);
}

size_t float_scratch_bytes_neon(const LinearTask& task) noexcept { return float_scratch_bytes<VectorPair>(task); }

GemmKernel float_vector_neon(tensor::DType dtype) noexcept {
  return find_float_vector<VectorPair, &widen_half, &widen_bf16>(dtype);
}

}  // namespace assay::backend::cpu
