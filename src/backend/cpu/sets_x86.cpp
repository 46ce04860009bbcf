// The kernel sets of x86-64 processors.
#include <cpuid.h>

#include <algorithm>

#include "backend/cpu/quantise.h"
#include "backend/cpu/set_functions.h"
#include "backend/cpu/simd_kernels.h"

namespace assay::backend::cpu {
namespace {

bool has_avx2() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool has_avx512() noexcept {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
}

GemvKernel gemv_avx2(const LinearTask& task) noexcept {
  if (task.as_f32) return nullptr;
  return is_a32(task) ? gemv_a32_avx2(task.format->dtype) : gemv_a256_avx2(task.format->dtype);
}

GemvKernel gemv_avx512(const LinearTask& task) noexcept {
  if (task.as_f32) return nullptr;
  return is_a32(task) ? gemv_a32_avx512(task.format->dtype) : gemv_a256_avx512(task.format->dtype);
}

GemmKernel gemm_avx2(const LinearTask& task) noexcept {
  const tensor::DType dtype = task.format->dtype;
  if (task.as_f32) return {&float_rows_avx2, &float_scratch_bytes_avx2, kFloatRowStep};
  if (is_few_columns(task)) return {};
  if (is_a32(task)) {
    const GemmKernel bytes = task.x.planes == 1 ? gemm_a32_bytes_avx2(dtype) : GemmKernel{};
    return bytes.run != nullptr ? bytes : gemm_a32_avx2(dtype, task.x.planes);
  }
  if (task.x.planes == 2) return gemm_a256_words_avx2(dtype);
  const GemmKernel bytes = gemm_a256_bytes_avx2(dtype);
  return bytes.run != nullptr ? bytes : gemm_a256_avx2(dtype);
}

constexpr int64_t kColumnsTokensMin = 8;  // from here on float_columns_avx512 is faster

GemmKernel gemm_avx512(const LinearTask& task) noexcept {
  if (task.as_f32) {
    const auto scratch_bytes = [](const LinearTask& any) noexcept {
      return std::max(float_scratch_bytes_avx512(any), float_columns_scratch_bytes_avx512(any));  // whichever runs for fewer tokens
    };
    return {task.n_tokens >= kColumnsTokensMin && task.k % 32 == 0 ? &float_columns_avx512 : &float_rows_avx512, scratch_bytes, kGemmRowStep};
  }
  if (is_few_columns(task)) return {};
  if (is_a32(task)) return gemm_a32_avx512(task.format->dtype);
  return task.x.planes == 2 ? gemm_a256_words_avx512(task.format->dtype) : gemm_a256_avx512(task.format->dtype);
}

// For how many tokens the kernels for few of them are the fastest: [formats with blocks of 32][planes - 1]. Below, a row is read
// for every two or four columns; above, panels in the second-level cache meet larger tiles.
struct FewTokens {
  int64_t min, max;
};
constexpr FewTokens kFewAvx512[2][2] = {{{3, 4}, {2, 12}}, {{5, 16}, {2, 32}}};
constexpr int64_t kFewRowBytesMax = 1 << 26;  // rows of a strip are reached by offsets of 32 bits

FewKernel few_avx512(const LinearTask& task) noexcept {
  if (task.as_f32 || task.row_bytes > kFewRowBytesMax) return {};
  const auto [min, max] = kFewAvx512[is_a32(task) ? 1 : 0][task.x.planes - 1];
  const tensor::DType dtype = task.format->dtype;
  return {is_a32(task) ? few_a32_avx512(dtype, task.x.planes) : few_a256_avx512(dtype, task.x.planes), min, max};
}

// With AVX2 tiles are the same in both walks, and the one for few tokens is the faster for many too, where a chunk of K is long enough that chains in
// memory do not count. Not so for blocks of 32 in bytes, whose chains stay in registers.
constexpr int64_t kLongRow = 2048, kAnyNumber = int64_t{1} << 62;

FewKernel few_avx2(const LinearTask& task) noexcept {
  if (task.as_f32) return {};
  const tensor::DType dtype = task.format->dtype;
  const bool long_row = task.k >= kLongRow;
  if (!is_a32(task)) {
    if (task.x.planes == 1) return {few_a256_avx2(dtype, 1), 5, long_row ? kAnyNumber : 32};
    return {few_a256_avx2(dtype, 2), 2, dtype == tensor::DType::Q4_K ? 3 : 12};  // bytes, which take less unpacking than words
  }
  const GemmKernel bytes = task.x.planes == 1 ? few_a32_bytes_avx2(dtype) : GemmKernel{};
  if (bytes.run != nullptr) return {bytes, 5, 16};
  return {few_a32_avx2(dtype, task.x.planes), task.x.planes == 1 ? 5 : 3, long_row ? kAnyNumber : 16};
}

void add_both_kernels(Kernels& kernels) noexcept {
  add_avx2_kernels(kernels);
  add_avx512_kernels(kernels);
}

constexpr SetFunctions kSets[] = {
    {KernelSet::avx2, &has_avx2, &gemv_avx2, kGroupLanesAvx2, &gemm_avx2, &quantise_rows_avx2, &add_avx2_kernels, &peak_loops_avx2, &few_avx2,
     &joins_planes_avx2},
    {KernelSet::avx512, &has_avx512, &gemv_avx512, kGroupLanesAvx512, &gemm_avx512, &quantise_rows_avx2, &add_both_kernels, &peak_loops_avx512,
     &few_avx512},
};

}  // namespace

std::span<const SetFunctions> sets_of_build() noexcept { return kSets; }

}  // namespace assay::backend::cpu
