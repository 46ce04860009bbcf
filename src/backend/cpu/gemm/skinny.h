// Matrix products of few tokens (some two to a few dozen: sequences decoding together, short prompts, tokens to be
// verified): weights stream from memory once as for one token, and each block of a strip of rows, once unpacked, meets
// all tokens while it is in the first-level cache.
//
//   weights     | strip 0 | strip 1 | ..        a strip is some rows; strip s + 1 is fetched, line by line, while strip s is multiplied
//   a strip     blocks b, b + 1, .. of its rows --- unpacked ---> panels, first-level cache  x  all tiles of tokens
//   tokens      sides [blocks][tiles] in scratch, laid out once
//   sums        chains of the chunk under way and of 1, 2 and 4 finished chunks, [tokens][rows of a strip] in scratch  ------>  y
#pragma once

#include "backend/cpu/gemm/gemm.h"

namespace assay::backend::cpu {

// Without run where there is no kernel for the format. Formats with blocks of 32, superblocks of 256.
GemmKernel skinny_a32_avx512(tensor::DType dtype, int planes) noexcept;
GemmKernel skinny_a256_avx512(tensor::DType dtype, int planes) noexcept;
GemmKernel skinny_a32_avx2(tensor::DType dtype, int planes) noexcept;
GemmKernel skinny_a32_bytes_avx2(tensor::DType dtype) noexcept;  // activations of one plane
GemmKernel skinny_a256_avx2(tensor::DType dtype, int planes) noexcept;

}  // namespace assay::backend::cpu
