// The kernel sets of 64-bit ARM processors.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "backend/cpu/linear/quantise.h"
#include "backend/cpu/sets/kernel_set.h"
#include "backend/cpu/sets/simd_kernels.h"

namespace assay::backend::cpu {
namespace {

bool has_dotprod() noexcept { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool has_i8mm() noexcept { return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }

using enum WeightKind;

constexpr int64_t kPanels1 = kGemvColumnsMax + 1,
                  kPanels2 = kGemvColumnsMax / 2 + 1;  // more than a vector kernel takes in one pass

LinearKernel float_vector(const LinearTask& t) noexcept { return {nullptr, float_vector_neon(t.format->dtype)}; }
LinearKernel floats_neon(const LinearTask&) noexcept {
  return {nullptr, {&float_rows_neon, &float_scratch_bytes_neon, kFloatRowStep}};
}
LinearKernel vector_neon(const LinearTask& t) noexcept { return {gemv_neon(t), {}}; }
template <GemmKernel (*kGemm)(const LinearTask&) noexcept>
LinearKernel panels(const LinearTask& t) noexcept {
  return {nullptr, kGemm(t)};
}

template <GemmKernel (*kGemm)(const LinearTask&) noexcept>
constexpr LinearRow kRows[] = {
    {"float vector", floats, 0, 1, 1, 1, 32, &float_vector},
    {"floats", floats, 0, 1, kAnyTokens, 1, 1, &floats_neon},
    {"panels", superblocks, 1, kPanels1, kAnyTokens, 1, 1, &panels<kGemm>},
    {"panels", superblocks, 2, kPanels2, kAnyTokens, 1, 1, &panels<kGemm>},
    {"vector", superblocks, 0, 1, kAnyTokens, 1, 1, &vector_neon},
    {"panels", blocks, 1, kPanels1, kAnyTokens, 1, 1, &panels<kGemm>},
    {"panels", blocks, 2, kPanels2, kAnyTokens, 1, 1, &panels<kGemm>},
    {"vector", blocks, 0, 1, kAnyTokens, 1, 1, &vector_neon},
};

constexpr KernelSetParts kSets[] = {
    {Kernels::neon, &has_dotprod, kRows<gemm_neon>, 0, &quantise_rows_neon, &add_neon_kernels},
    {Kernels::neon_i8mm, &has_i8mm, kRows<gemm_neon_i8mm>, 0, &quantise_rows_neon, &add_neon_kernels},
};

}  // namespace

std::span<const KernelSetParts> sets_of_build() noexcept { return kSets; }

}  // namespace assay::backend::cpu
