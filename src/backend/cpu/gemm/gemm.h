// The matrix-matrix kernels of each instruction set: a panel of rows is unpacked once into scratch and all tokens run
// against it.
//
//   weights, memory       --- unpacked once ------------------->  a panel of rows, second-level cache; superblocks by AVX-512: 32 rows of one,
//                                                                 first-level cache
//   activations           --- laid out once, tile by tile ----->  tiles of tokens, beside it
//   a strip of the panel x a tile: rows are the lanes of registers, a token's number is spread over all lanes; the
//     integers of a block and the chains of a chunk stay in registers, finished chunks wait in memory for the
//     contract's tree  ------>  y [tokens][rows]
//
// The instruction sets differ in the rows of a strip: 2 x 8 (gemm_avx2.h), 2 x 16 (gemm_loops_avx512.h), 8
// (gemm_neon.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/linear/linear.h"

namespace assay::backend::cpu {

inline constexpr int64_t kGemmRowStep = 32;         // rows of a tile
inline constexpr int64_t kPanelBytes = 192 * 1024;  // what a panel may take of the second-level cache

struct GemmKernel {
  void (*run)(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept = nullptr;
  size_t (*scratch_bytes)(const LinearTask& task) noexcept = nullptr;
  int64_t row_step = kGemmRowStep;
  // As run, where scratch is as the kernel's last run left it, which had the same activations: what it laid out of them
  // serves again. May be null.
  void (*run_again)(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept = nullptr;
};

// Without run where there is no kernel for the format. Formats with blocks of 32.
GemmKernel gemm_a32_avx2(tensor::DType dtype, int planes) noexcept;
GemmKernel gemm_a32_bytes_avx2(tensor::DType dtype) noexcept;  // activations of one plane, weights small and unsigned
GemmKernel gemm_a32_avx512(tensor::DType dtype) noexcept;
// Superblocks of 256.
GemmKernel gemm_a256_avx2(tensor::DType dtype) noexcept;        // activations of one plane, signed weights
GemmKernel gemm_a256_bytes_avx2(tensor::DType dtype) noexcept;  // activations of one plane, weights small and unsigned
GemmKernel gemm_a256_words_avx2(tensor::DType dtype) noexcept;  // activations of two planes
GemmKernel gemm_a256_avx512(tensor::DType dtype) noexcept;
GemmKernel gemm_a256_words_avx512(tensor::DType dtype) noexcept;  // activations of two planes
// Quantised weights of both kinds.
GemmKernel gemm_neon(const LinearTask& task) noexcept;
GemmKernel gemm_neon_i8mm(const LinearTask& task) noexcept;

// One row of a format to f32, with the roundings of quant::Format::decode.
using DecodeRow = void (*)(const LinearTask& task, const std::byte* row, float* out);
inline constexpr int64_t kFloatRowStep = 4;
// Weights that are floats in the file, one token, rows of whole blocks of 32; without run where they are not.
GemmKernel float_vector_avx2(tensor::DType dtype) noexcept;
GemmKernel float_vector_avx512(tensor::DType dtype) noexcept;
GemmKernel float_vector_neon(tensor::DType dtype) noexcept;
// Any format as floats (LinearTask::as_f32), any number of tokens.
void float_rows_avx2(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept;
void float_rows_avx512(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept;
// The same for many tokens and rows of whole blocks of 32.
void float_columns_avx512(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept;
void float_rows_neon(const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch) noexcept;
size_t float_scratch_bytes_avx2(const LinearTask& task) noexcept;
size_t float_scratch_bytes_avx512(const LinearTask& task) noexcept;
size_t float_columns_scratch_bytes_avx512(const LinearTask& task) noexcept;
size_t float_scratch_bytes_neon(const LinearTask& task) noexcept;

}  // namespace assay::backend::cpu
