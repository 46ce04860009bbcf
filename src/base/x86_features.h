// What an x86-64 processor has beyond the architecture's first instructions. For sources of x86-64 alone.
#pragma once

#include <cpuid.h>

namespace assay::base {

// AVX2 with conversions to and from half precision, which clang 14's __builtin_cpu_supports does not know by name.
inline bool has_avx2_and_f16c() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2");
}

}  // namespace assay::base
