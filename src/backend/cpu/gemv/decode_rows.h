// Rows of any format decoded to f32 by AVX2, with the roundings of quant::Format::decode. Included by kernel files
// only; everything here is local to the file that includes it.
#pragma once

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/panel_a32.h"
#include "backend/cpu/gemv/unpack_a256.h"

namespace assay::backend::cpu {
namespace {

constexpr int64_t kDecodeAhead = 3072;  // bytes of prefetch

inline __m256 to_floats(__m128i bytes) noexcept { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }

// Half precision and bfloat16: the processor's own conversion is exact.
inline __m256 widen_half(const std::byte* p) noexcept {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m256 widen_bf16(const std::byte* p) noexcept {
  const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

template <__m256 (*widen)(const std::byte*)>
void decode_16_bits(const LinearTask& task, const std::byte* row, float* out) {
  int64_t j = 0;
  for (; j + 32 <= task.k; j += 32) {
    _mm_prefetch(reinterpret_cast<const char*>(row + 2 * j + kDecodeAhead), _MM_HINT_T0);
    for (int64_t i = 0; i < 32; i += 8) _mm256_storeu_ps(out + j + i, widen(row + 2 * (j + i)));
  }
  for (; j < task.k; ++j) task.format->decode(row + 2 * j, out + j);
}

// 16 weights: scale * w, or that plus a minimum.
template <bool kHasMin>
inline void store_16(__m128i weights, __m256 scale, __m256 minimum, float* out) noexcept {
  __m256 low = _mm256_mul_ps(scale, to_floats(weights)),
         high = _mm256_mul_ps(scale, to_floats(_mm_srli_si128(weights, 8)));
  if constexpr (kHasMin) {
    low = _mm256_add_ps(low, minimum);
    high = _mm256_add_ps(high, minimum);
  }
  _mm256_storeu_ps(out, low);
  _mm256_storeu_ps(out + 8, high);
}

template <class Format>
void decode_a32(const LinearTask& task, const std::byte* row, float* out) {
  for (int64_t j = 0; j < task.k; j += 32, row += Format::kBlockBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(row + kDecodeAhead), _MM_HINT_T0);
    const __m256i w = _mm256_sub_epi8(Format::weights(row), _mm256_set1_epi8(static_cast<char>(Format::kOffset)));
    const __m256 d = Format::d(row, 0),
                 m = Format::kHasMin ? Format::m(row, 0) : _mm256_setzero_ps();  // the same in every lane
    store_16<Format::kHasMin>(_mm256_castsi256_si128(w), d, m, out + j);
    store_16<Format::kHasMin>(_mm256_extracti128_si256(w, 1), d, m, out + j + 16);
  }
}

template <class Format>
void decode_a256(const LinearTask& task, const std::byte* row, float* out) {
  const int64_t block_bytes = Format::block_bytes(task);
  for (int64_t j = 0; j < task.k; j += 256, row += block_bytes) {
    for (int64_t b = 0; b < block_bytes; b += 64)
      _mm_prefetch(reinterpret_cast<const char*>(row + b + kDecodeAhead), _MM_HINT_T0);
    const std::byte* same[kLanes] = {row, row, row, row, row, row, row, row};
    const Scales s = Format::scales(task, same);
    const auto block = Format::open(task, row);
    const SubScales sub = Format::sub_scales(block);
    alignas(32) float scale[16], minimum[16];
    for (int half = 0; half < 2; ++half) {
      const auto words = [half](__m256i v) {
        return _mm256_cvtepi32_ps(
            _mm256_cvtepi16_epi32(half == 0 ? _mm256_castsi256_si128(v) : _mm256_extracti128_si256(v, 1)));
      };
      _mm256_store_ps(scale + 8 * half, _mm256_mul_ps(s.d, words(sub.scale)));
      _mm256_store_ps(minimum + 8 * half, _mm256_mul_ps(s.m, words(sub.min)));
    }
    for (int half = 0; half < 2; ++half) {
      __m256i w[4];
      Format::unpack(block, half, w);
      for (int i = 0; i < 4; ++i) {
        const __m256i centred = _mm256_sub_epi8(w[i], _mm256_set1_epi8(static_cast<char>(Format::kOffset)));
        const int group = 8 * half + 2 * i;
        float* to = out + j + 16 * group;
        store_16<Format::kHasMin>(_mm256_castsi256_si128(centred), _mm256_set1_ps(scale[group]),
                                  _mm256_set1_ps(minimum[group]), to);
        store_16<Format::kHasMin>(_mm256_extracti128_si256(centred, 1), _mm256_set1_ps(scale[group + 1]),
                                  _mm256_set1_ps(minimum[group + 1]), to + 16);
      }
    }
  }
}

// Null where the file's rows are floats already.
inline DecodeRow find_decode(tensor::DType dtype) noexcept {
  using tensor::DType;
  switch (dtype) {
    case DType::F32: return nullptr;
    case DType::F16: return &decode_16_bits<&widen_half>;
    case DType::BF16: return &decode_16_bits<&widen_bf16>;
    case DType::Q4_0: return &decode_a32<RowsQ4_0>;
    case DType::Q4_1: return &decode_a32<RowsQ4_1>;
    case DType::Q5_0: return &decode_a32<RowsQ5_0>;
    case DType::Q5_1: return &decode_a32<RowsQ5_1>;
    case DType::Q8_0: return &decode_a32<RowsQ8_0>;
    case DType::IQ4_NL: return &decode_a32<RowsIQ4_NL>;
    case DType::MXFP4: return &decode_a32<RowsMXFP4>;
    case DType::Q2_K: return &decode_a256<UnpackQ2_K>;
    case DType::Q3_K: return &decode_a256<UnpackQ3_K>;
    case DType::Q4_K: return &decode_a256<UnpackQ4_K>;
    case DType::Q5_K: return &decode_a256<UnpackQ5_K>;
    case DType::Q6_K: return &decode_a256<UnpackQ6_K>;
    case DType::IQ4_XS: return &decode_a256<UnpackIQ4_XS>;
    default: return &decode_a256<UnpackAny>;
  }
}

}  // namespace
}  // namespace assay::backend::cpu
