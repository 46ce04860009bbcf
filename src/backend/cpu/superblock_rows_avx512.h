// A superblock of 16 rows for the AVX-512 matrix-matrix kernels: the rows are the 16 lanes of a register. Included by kernel files only; everything
// here is local to the file that includes it.
#pragma once

#include "backend/cpu/gemm_avx512.h"
#include "backend/cpu/unpack_a256.h"

namespace assay::backend::cpu {
namespace {

// Each row's weights as bytes without sign (weight + kStored) and its scales and minima as words.
template <class Format>
struct SuperblockRows {
  static constexpr int kStored = Format::kSigned ? 128 : Format::kOffset;

  SuperblockRows(const LinearTask& task, const std::byte* const* rows, int64_t b) noexcept {
    const int64_t begin = b * Format::block_bytes(task);
    const std::byte* p[kRows];
    for (int64_t i = 0; i < kRows; ++i) {
      p[i] = rows[i] + begin;
      const auto block = Format::open(task, p[i]);
      const SubScales s = Format::sub_scales(block);
      scale[i] = s.scale;
      min[i] = s.min;
      for (int half = 0; half < 2; ++half) {
        __m256i w[4];
        Format::unpack(block, half, w);
        for (int j = 0; j < 4; ++j) bytes[4 * half + j][i] = Format::kSigned ? _mm256_xor_si256(w[j], _mm256_set1_epi8(-128)) : w[j];
      }
    }
    for (int64_t i = 0; i < kRows; i += kLanes) {
      const Scales s = Format::scales(task, p + i);
      _mm256_store_ps(d + i, s.d);
      _mm256_store_ps(m + i, s.m);
    }
  }

  // Elements 32 j .. 32 j + 31, transposed: 4 of every row in each register.
  void transpose(int j, __m512i* w) const noexcept {
    transpose_16([&](int i) { return bytes[j][i]; }, w);
  }

  // Words of 16 rows, transposed: register p holds words 2p and 2p + 1 of every row.
  static void transpose_words(const __m256i* words, __m512i* pairs) noexcept {
    transpose_16([&](int i) { return words[i]; }, pairs);
  }

  __m256i bytes[8][kRows], scale[kRows], min[kRows];
  alignas(64) float d[kRows], m[kRows];
};

}  // namespace
}  // namespace assay::backend::cpu
