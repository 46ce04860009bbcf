// The kernel sets of 64-bit ARM processors.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "backend/cpu/quantise.h"
#include "backend/cpu/set_functions.h"
#include "backend/cpu/simd_kernels.h"

namespace assay::backend::cpu {
namespace {

bool has_dotprod() noexcept { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool has_i8mm() noexcept { return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }

GemvKernel gemv(const LinearTask& task) noexcept { return task.as_f32 ? nullptr : gemv_neon(task); }

template <GemmKernel (*kGemm)(const LinearTask&) noexcept>
GemmKernel gemm(const LinearTask& task) noexcept {
  if (task.as_f32) return {&float_rows_neon, &float_scratch_bytes_neon, kFloatRowStep};
  return is_few_columns(task) ? GemmKernel{} : kGemm(task);
}

constexpr SetFunctions kSets[] = {
    {KernelSet::neon, &has_dotprod, &gemv, 0, &gemm<gemm_neon>, &quantise_rows_neon, &add_neon_kernels},
    {KernelSet::neon_i8mm, &has_i8mm, &gemv, 0, &gemm<gemm_neon_i8mm>, &quantise_rows_neon, &add_neon_kernels},
};

}  // namespace

std::span<const SetFunctions> sets_of_build() noexcept { return kSets; }

}  // namespace assay::backend::cpu
