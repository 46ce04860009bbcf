// See plain_formats.h. Source: the GGUF specification's list of types and the layouts as llama.cpp writes them.
#include "faulty/plain_formats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "assay/error.h"

namespace assay::faults {
namespace {

using tensor::DType;

int byte_at(const std::byte* block, int64_t i) { return static_cast<int>(block[i]); }
int signed_byte_at(const std::byte* block, int64_t i) { return static_cast<int8_t>(byte_at(block, i)); }

// 32 weights of 4 or 5 bits; `quants` is where the nibbles begin, `fifth` where the 32 fifth bits do (nullptr: none).
void decode_32(const std::byte* quants, const std::byte* fifth, double d, double shift, float* out, Fault fault) {
  for (int j = 0; j < 32; ++j) {
    const int byte = fault == Fault::nibbles_interleaved ? j / 2 : j % 16;
    const bool high = fault == Fault::nibbles_interleaved ? j % 2 == 1 : j >= 16;
    int q = high ? byte_at(quants, byte) / 16 : byte_at(quants, byte) % 16;
    if (fifth != nullptr) q += 16 * (byte_at(fifth, j / 8) >> (j % 8) & 1);
    out[j] = static_cast<float>(d * q + shift);
  }
}

struct ScaleAndMin {
  double scale, min;
};

// Sub-block i of the 8 whose 6-bit scales and minima lie in 12 bytes.
ScaleAndMin k_scale(const std::byte* packed, int i, Fault fault) {
  int scale = 0, min = 0;
  if (i < 4) {
    scale = byte_at(packed, i) % 64;
    min = byte_at(packed, i + 4) % 64;
  } else {
    scale = byte_at(packed, i + 4) % 16;
    min = byte_at(packed, i + 4) / 16;
    if (fault != Fault::k_scales_high) {
      scale += byte_at(packed, i - 4) / 64 * 16;
      min += byte_at(packed, i) / 64 * 16;
    }
  }
  if (fault == Fault::k_scales_over_63) return {scale / 63.0, min / 63.0};
  return {static_cast<double>(scale), static_cast<double>(min)};
}

void decode_q4_k(const std::byte* block, float* out, Fault fault) {
  const double d = half_at(block), d_min = half_at(block + 2);
  const std::byte* quants = block + 16;
  for (int j = 0; j < 256; ++j) {
    const int quarter = j / 64, inside = j % 64;
    int byte = 32 * quarter + inside % 32;
    bool high = inside >= 32;
    if (fault == Fault::k_nibble_group) byte = inside % 32;
    if (fault == Fault::nibbles_interleaved) {
      byte = 32 * quarter + inside / 2;
      high = inside % 2 == 1;
    }
    const int q = high ? byte_at(quants, byte) / 16 : byte_at(quants, byte) % 16;
    const ScaleAndMin s = k_scale(block + 4, j / 32, fault);
    const double min = fault == Fault::k_min_sign ? -s.min : s.min;
    out[j] = static_cast<float>(d * s.scale * q - d_min * min);
  }
}

void decode_q5_k(const std::byte* block, float* out, Fault fault) {
  const double d = half_at(block), d_min = half_at(block + 2);
  for (int j = 0; j < 256; ++j) {
    const int byte = byte_at(block + 48, 32 * (j / 64) + j % 32);
    int q = j % 64 >= 32 ? byte / 16 : byte % 16;
    q += 16 * (byte_at(block + 16, j % 32) >> (j / 32) & 1);
    const ScaleAndMin s = k_scale(block + 4, j / 32, fault);
    const double min = fault == Fault::k_min_sign ? -s.min : s.min;
    out[j] = static_cast<float>(d * s.scale * q - d_min * min);
  }
}

void decode_q6_k(const std::byte* block, float* out, Fault fault) {
  const double d = half_at(block + 208);
  const std::byte* high_bits = block + 128;
  const std::byte* scales = block + 192;
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, i = j % 128;
    int low = byte_at(block, 64 * half + i % 64);
    low = i >= 64 ? low / 16 : low % 16;
    int high = byte_at(high_bits, 32 * half + i % 32) >> (2 * (i / 32)) & 3;
    if (fault == Fault::q6_k_sequential) {
      low = byte_at(block, j / 2);
      low = j % 2 == 1 ? low / 16 : low % 16;
      high = byte_at(high_bits, j / 4) >> (2 * (j % 4)) & 3;
    }
    out[j] = static_cast<float>(d * signed_byte_at(scales, j / 16) * (low + 16 * high - 32));
  }
}

void decode_q2_k(const std::byte* block, float* out, Fault fault) {
  const double d = half_at(block + 80), d_min = half_at(block + 82);
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, i = j % 128;
    const int q = byte_at(block + 16, 32 * half + i % 32) >> (2 * (i / 32)) & 3;
    // The bytes of a half serve its four quarters in turn; the fault takes the scales in the order of the bytes
    // instead.
    const int group = fault == Fault::q2_k_scale_lanes ? 8 * half + i % 32 / 16 * 4 + i / 32 : j / 16;
    const int packed = byte_at(block, group);
    out[j] = static_cast<float>(d * (packed % 16) * q - d_min * (packed / 16));
  }
}

void decode_q3_k(const std::byte* block, float* out) {
  const double d = half_at(block + 108);
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128, i = j % 128, group = j / 16;
    const int low = byte_at(block + 32, 32 * half + i % 32) >> (2 * (i / 32)) & 3;
    const int high = byte_at(block, j % 32) >> (j / 32) & 1;
    const int nibble = group < 8 ? byte_at(block + 96, group) % 16 : byte_at(block + 96, group - 8) / 16;
    const int top = byte_at(block + 104, group % 4) >> (2 * (group / 4)) & 3;
    out[j] = static_cast<float>(d * (nibble + 16 * top - 32) * (low + 4 * high - 4));
  }
}

void decode_block(DType dtype, const std::byte* block, float* out, Fault fault) {
  switch (dtype) {
    case DType::F32: std::memcpy(out, block, 4); break;
    case DType::F16: *out = static_cast<float>(half_at(block)); break;
    case DType::BF16:
      *out = std::bit_cast<float>(static_cast<uint32_t>(byte_at(block, 0) + 256 * byte_at(block, 1)) << 16);
      break;
    case DType::Q4_0: decode_32(block + 2, nullptr, half_at(block), -8 * half_at(block), out, fault); break;
    case DType::Q4_1: decode_32(block + 4, nullptr, half_at(block), half_at(block + 2), out, fault); break;
    case DType::Q5_0: decode_32(block + 6, block + 2, half_at(block), -16 * half_at(block), out, Fault::none); break;
    case DType::Q5_1: decode_32(block + 8, block + 4, half_at(block), half_at(block + 2), out, Fault::none); break;
    case DType::Q8_0:
      for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(half_at(block) * signed_byte_at(block, 2 + j));
      break;
    case DType::Q2_K: decode_q2_k(block, out, fault); break;
    case DType::Q3_K: decode_q3_k(block, out); break;
    case DType::Q4_K: decode_q4_k(block, out, fault); break;
    case DType::Q5_K: decode_q5_k(block, out, fault); break;
    case DType::Q6_K: decode_q6_k(block, out, fault); break;
    default: throw Error(Errc::unsupported, "the faulty engine does not decode this type of weight");
  }
}

}  // namespace

double half_at(const std::byte* bytes) {
  const int bits = byte_at(bytes, 0) + 256 * byte_at(bytes, 1);
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31)
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  return bits >= 0x8000 ? -magnitude : magnitude;
}

float to_half(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double magnitude = std::abs(static_cast<double>(x));
  const double step = std::ldexp(1.0, std::max(std::ilogb(magnitude), -14) - 10);
  const double rounded = std::nearbyint(magnitude / step) * step;
  return std::copysign(rounded >= 65520 ? std::numeric_limits<float>::infinity() : static_cast<float>(rounded), x);
}

uint16_t half_bits(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return 0x7E00;
  if (std::isinf(x)) return sign | 0x7C00;
  if (x == 0) return sign;
  const int exponent = std::max(std::ilogb(x), -14);
  const int steps = static_cast<int>(std::ldexp(std::abs(x), 10 - exponent));  // 1024 .. 2047, less for subnormals
  const int biased = steps >= 1024 ? exponent + 15 : 0;
  return static_cast<uint16_t>(sign | (biased << 10) | (steps & 1023));
}

float to_bfloat16(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double step = std::ldexp(1.0, std::ilogb(x) - 7);
  return static_cast<float>(std::nearbyint(static_cast<double>(x) / step) * step);
}

bool decodes(DType dtype) {
  switch (dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::Q4_0:
    case DType::Q4_1:
    case DType::Q5_0:
    case DType::Q5_1:
    case DType::Q8_0:
    case DType::Q2_K:
    case DType::Q3_K:
    case DType::Q4_K:
    case DType::Q5_K:
    case DType::Q6_K: return true;
    default: return false;
  }
}

void decode_plain(DType dtype, const std::byte* row, int64_t n, float* out, Fault fault) {
  const tensor::DTypeTraits& t = tensor::traits(dtype);
  for (int64_t i = 0; i < n / t.block_elements; ++i)
    decode_block(dtype, row + i * t.block_bytes, out + i * t.block_elements, fault);
}

std::vector<float> decode_tensor(const tensor::TensorView& tensor, Fault fault) {
  const tensor::DTypeTraits& t = tensor::traits(tensor.dtype);
  const int64_t cols = tensor.shape.cols(), rows = tensor.shape.rows(), n_blocks = rows * cols / t.block_elements;
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < cols / t.block_elements; ++i) {
      int64_t block = row * (cols / t.block_elements) + i;
      if (fault == Fault::row_stride && t.block_elements > 1) block = row * cols + i;
      if (block >= n_blocks) continue;  // beyond the tensor: zeros
      decode_block(tensor.dtype, tensor.data.data() + block * t.block_bytes,
                   out.data() + row * cols + i * t.block_elements, fault);
    }
  }
  return out;
}

}  // namespace assay::faults
