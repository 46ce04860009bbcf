// The instruction peak of AVX2 (peak.h).
#include <immintrin.h>

#include "backend/cpu/sets/peak.h"

namespace assay::backend::cpu {
namespace {

// The compiler must take each for changed, so that it finds no two of them equal and moves no product out of the loop.
template <class Register>
inline void changes(Register& r) noexcept {
  asm volatile("" : "+x"(r));
}

constexpr int kWords = 6;

// As 4-bit weights allow: the products of 32 elements are summed in words, each eighth sum widened.
void multiply_bytes(int64_t n_steps) noexcept {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum[kWords] = {}, w = ones, x = ones;
  for (int64_t i = 0; i < n_steps; ++i) {
    __m256i words[kWords];
    for (int k = 0; k < 8; ++k) {
      for (auto& word : words) {
        changes(w);
        const __m256i products = _mm256_maddubs_epi16(w, x);
        word = k == 0 ? products : _mm256_add_epi16(word, products);
        changes(word);  // also keeps the compiler from spreading the loop over more registers than there are
      }
    }
    for (int t = 0; t < kWords; ++t) sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(words[t], ones));
  }
  for (auto& s : sum) changes(s);
}

void multiply_floats(int64_t n_steps) noexcept {
  __m256 sum[12] = {}, w = _mm256_setzero_ps(), x = w;
  for (auto& s : sum) changes(s);
  for (int64_t i = 0; i < n_steps; ++i) {
    changes(w);
    changes(x);
    for (auto& s : sum) s = _mm256_fmadd_ps(w, x, s);
  }
  for (auto& s : sum) changes(s);
}

}  // namespace

PeakLoops peak_loops_avx2() noexcept {
  return {{"vpmaddubsw + vpaddw, 1/8 of vpmaddwd + vpaddd", kWords * 8 * 32, multiply_bytes},
          {"vfmadd ymm", 12 * 8, multiply_floats}};
}

}  // namespace assay::backend::cpu
