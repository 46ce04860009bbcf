// The instruction peak of AVX-512 VNNI (peak.h).
#include <immintrin.h>

#include "backend/cpu/sets/peak.h"

namespace assay::backend::cpu {
namespace {

constexpr int kSums = 16;

// The compiler must take each for changed, so that it finds no two sums equal and moves no product out of the loop.
template <class Register>
inline void changes(Register& r) noexcept {
  asm volatile("" : "+v"(r));
}

void multiply_bytes(int64_t n_steps) noexcept {
  __m512i sum[kSums] = {}, w = _mm512_set1_epi8(1), x = w;
  for (auto& s : sum) changes(s);
  for (int64_t i = 0; i < n_steps; ++i) {
    changes(w);
    changes(x);
    for (__m512i& s : sum) s = _mm512_dpbusd_epi32(s, w, x);
  }
  for (__m512i& s : sum) changes(s);
}

void multiply_floats(int64_t n_steps) noexcept {
  __m512 sum[kSums] = {}, w = _mm512_setzero_ps(), x = w;
  for (auto& s : sum) changes(s);
  for (int64_t i = 0; i < n_steps; ++i) {
    changes(w);
    changes(x);
    for (__m512& s : sum) s = _mm512_fmadd_ps(w, x, s);
  }
  for (__m512& s : sum) changes(s);
}

}  // namespace

PeakLoops peak_loops_avx512() noexcept {
  return {{"vpdpbusd zmm", kSums * 64, multiply_bytes}, {"vfmadd zmm", kSums * 16, multiply_floats}};
}

}  // namespace assay::backend::cpu
