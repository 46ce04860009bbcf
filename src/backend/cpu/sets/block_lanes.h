// Blocks side by side in a register, by the instruction set that the including file is compiled for. Included by kernel
// files only.
#pragma once

#ifdef __AVX512VNNI__
#include "backend/cpu/sets/block_lanes_avx512.h"
#else
#include "backend/cpu/sets/block_lanes_avx2.h"
#endif
