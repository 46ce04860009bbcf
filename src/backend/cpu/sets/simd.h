// Vec, the vector of the instruction set that the including file is compiled for: its flags choose, so that a kernel is
// written once.
#pragma once

#if defined(__aarch64__)
#include "backend/cpu/sets/simd_neon.h"
#elif defined(__AVX512F__)
#include "backend/cpu/sets/simd_avx512.h"
#else
#include "backend/cpu/sets/simd_avx2.h"
#endif
