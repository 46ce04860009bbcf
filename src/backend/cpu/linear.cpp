// Choice of kernel for a matrix product, and the scalar reference that stands behind every empty slot.
#include "backend/cpu/linear.h"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "backend/cpu/gemm.h"
#include "backend/cpu/gemv.h"
#include "backend/cpu/quantise.h"

namespace assay::backend::cpu {

namespace {

void linear_rows_reference(const LinearTask& task, int64_t row_begin, int64_t row_end) noexcept {
  for (int64_t r = row_begin; r < row_end; ++r) {
    const std::byte* row = task.weights + r * task.row_bytes;
    for (int64_t t = 0; t < task.n_tokens; ++t) {
      const float dot = task.as_f32 ? quant::dot_f32_ref(*task.format, row, task.x_f32.row(t), task.k)
                                    : quant::dot_ref(*task.format, row, task.x, t);
      task.y(t, r) = task.bias == nullptr ? dot : dot + task.bias[r];
    }
  }
}

GemvKernel find_gemv(KernelSet set, const LinearTask& task) noexcept {
  if (task.as_f32) return nullptr;
  const tensor::DType dtype = task.format->dtype;
  const bool a32 = task.format->activation == quant::Activation::a32;
  switch (set) {
    case KernelSet::reference: return nullptr;
    case KernelSet::avx2: return a32 ? gemv_a32_avx2(dtype) : gemv_a256_avx2(dtype);
    case KernelSet::avx512: return a32 ? gemv_a32_avx512(dtype) : gemv_a256_avx512(dtype);
  }
  return nullptr;
}

GemmKernel find_gemm(KernelSet set, const LinearTask& task) noexcept {
  if (set == KernelSet::reference) return {};
  const tensor::DType dtype = task.format->dtype;
  const bool a32 = task.format->activation == quant::Activation::a32;
  if (task.as_f32) {
    if (set == KernelSet::avx512) return {&float_rows_avx512, &float_scratch_bytes_avx512, kFloatRowStep};
    return {&float_rows_avx2, &float_scratch_bytes_avx2, kFloatRowStep};
  }
  if (task.n_tokens * task.x.planes <= kGemvColumnsMax) return {};
  if (set == KernelSet::avx512) return a32 ? gemm_a32_avx512(dtype) : gemm_a256_avx512(dtype);
  if (!a32) return gemm_a256_avx2(dtype);
  const GemmKernel bytes = task.x.planes == 1 ? gemm_a32_bytes_avx2(dtype) : GemmKernel{};
  return bytes.run != nullptr ? bytes : gemm_a32_avx2(dtype);
}

}  // namespace

KernelSet best_kernel_set() noexcept {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  const bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx512) return KernelSet::avx512;
  if (avx2) return KernelSet::avx2;
#endif
  return KernelSet::reference;
}

void linear_rows(KernelSet set, const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept {
  if (const GemmKernel gemm = find_gemm(set, task); gemm.run != nullptr) return gemm.run(task, row_begin, row_end, scratch);
  const GemvKernel gemv = find_gemv(set, task);
  if (gemv == nullptr) return linear_rows_reference(task, row_begin, row_end);
  for (int64_t token = 0; token < task.n_tokens;) {
    const int tokens = gemv_tokens(task, token);
    gemv(task, gemv_prepare(task, token, tokens, scratch), token, row_begin, row_end);
    token += tokens;
  }
}

size_t linear_scratch_bytes(KernelSet set, const LinearTask& task) noexcept {
  size_t bytes = find_gemv(set, task) != nullptr ? gemv_scratch_bytes(task) : 0;
  if (const GemmKernel gemm = find_gemm(set, task); gemm.run != nullptr) bytes = std::max(bytes, gemm.scratch_bytes(task));
  return bytes;
}

int64_t linear_row_step(KernelSet set, const LinearTask& task) noexcept {
  const GemmKernel gemm = find_gemm(set, task);
  return gemm.run != nullptr ? gemm.row_step : 1;
}

void quantise_rows(KernelSet set, tensor::ConstMat x, const quant::Activations& out, int64_t row_begin, int64_t row_end) noexcept {
  if (set != KernelSet::reference) return quantise_rows_avx2(x, out, row_begin, row_end);
  for (int64_t r = row_begin; r < row_end; ++r) quant::quantise_row_ref(x.row(r), out, r);
}

}  // namespace assay::backend::cpu
