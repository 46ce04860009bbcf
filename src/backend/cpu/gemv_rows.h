// The walk of the matrix-vector kernels over rows and steps, shared by all formats and instruction sets: contract dot/1 over 8 lanes. Included by
// kernel files only; everything here is local to the file that includes it.
#pragma once

#include <immintrin.h>

#include "backend/cpu/block_scales.h"
#include "backend/cpu/gemv_prepare.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kPrefetchBytes = 3072;  // ahead of the row; where reads from memory were fastest

// The blocks that one step handles: p[lane] is block number first[lane] + add of the row.
struct StepBlocks {
  const std::byte* p[kLanes];
  const int64_t* first;
  int64_t add;
  int64_t step;
};

// Section 2.4 of the contract over the chunks c0..c7.
inline float tree(__m256 c) noexcept {
  const __m256 pairs = _mm256_hadd_ps(c, c);
  const __m256 fours = _mm256_hadd_ps(pairs, pairs);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}

// F of section 2.2 for 8 blocks from the sums of one plane or two.
template <int kPlanes>
inline __m256 join_planes(const __m256i* sums) noexcept {
  if constexpr (kPlanes == 1) return _mm256_cvtepi32_ps(sums[0]);
  return _mm256_fmadd_ps(_mm256_set1_ps(0x1p-7f), _mm256_cvtepi32_ps(sums[1]), _mm256_cvtepi32_ps(sums[0]));
}

// Format::step<planes, tokens>(task, x, token, blocks, c) adds the terms of 8 blocks to the chains c of every token.
template <class Format, int kPlanes, int kTokens>
void gemv_rows(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin, int64_t row_end) noexcept {
  const GemvChain& chain = x.chain;
  const __m256 last_mask = _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(chain.last_mask)));
  const int64_t block_bytes = Format::block_bytes(task);
  const int64_t bytes_of_step = task.row_bytes / chain.steps;
  for (int64_t r = row_begin; r < row_end; ++r) {
    const std::byte* row = task.weights + r * task.row_bytes;
    const std::byte* ahead = row + kPrefetchBytes;
    __m256 c[kTokens];
    for (int t = 0; t < kTokens; ++t) c[t] = _mm256_setzero_ps();
    StepBlocks blocks;
    blocks.first = chain.first;
    for (int lane = 0; lane < kLanes; ++lane) blocks.p[lane] = row + chain.first[lane] * block_bytes;
    for (int64_t step = 0; step < chain.full_steps; ++step) {
      for (int64_t b = 0; b < bytes_of_step; b += 64) _mm_prefetch(reinterpret_cast<const char*>(ahead + b), _MM_HINT_T0);
      ahead += bytes_of_step;
      blocks.add = blocks.step = step;
      Format::template step<kPlanes, kTokens>(task, x, token, blocks, c);
      for (int lane = 0; lane < kLanes; ++lane) blocks.p[lane] += block_bytes;
    }
    if (chain.steps != chain.full_steps) {
      for (int64_t b = 0; b < bytes_of_step; b += 64) _mm_prefetch(reinterpret_cast<const char*>(ahead + b), _MM_HINT_T0);
      __m256 next[kTokens];
      for (int t = 0; t < kTokens; ++t) next[t] = c[t];
      for (int lane = 0; lane < kLanes; ++lane) blocks.p[lane] = row + chain.last[lane] * block_bytes;
      blocks.first = chain.last;
      blocks.add = 0;
      blocks.step = chain.full_steps;
      Format::template step<kPlanes, kTokens>(task, x, token, blocks, next);
      for (int t = 0; t < kTokens; ++t) c[t] = _mm256_blendv_ps(c[t], next[t], last_mask);
    }
    for (int t = 0; t < kTokens; ++t) {
      const float dot = tree(c[t]);
      task.y.data[(token + t) * task.y.stride + r] = task.bias == nullptr ? dot : dot + task.bias[r];
    }
  }
}

// The instance for the operand's planes and tokens.
template <class Format>
void gemv_any(const LinearTask& task, const GemvOperand& x, int64_t token, int64_t row_begin, int64_t row_end) noexcept {
  if (x.planes == 2) {
    if (x.tokens == 2) return gemv_rows<Format, 2, 2>(task, x, token, row_begin, row_end);
    return gemv_rows<Format, 2, 1>(task, x, token, row_begin, row_end);
  }
  if (x.tokens == 4) return gemv_rows<Format, 1, 4>(task, x, token, row_begin, row_end);
  if (x.tokens == 2) return gemv_rows<Format, 1, 2>(task, x, token, row_begin, row_end);
  return gemv_rows<Format, 1, 1>(task, x, token, row_begin, row_end);
}

}  // namespace
}  // namespace assay::backend::cpu
