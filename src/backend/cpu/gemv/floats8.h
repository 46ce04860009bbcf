// Eight floats and eight integers side by side, as the 8 chunks of contract dot/1 are: what the matrix-vector kernels
// and the float tiles are written over. The instruction set that the including file is compiled for chooses.
#pragma once

#ifdef __aarch64__
#include "backend/cpu/gemv/floats8_neon.h"
#else
#include "backend/cpu/gemv/floats8_avx2.h"
#endif
