// See matrices.h.
#include "backend/vulkan/linear/matrices.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "base/round_up.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace assay::backend::vulkan {
namespace {

using tensor::DType;

// As linear/formats.glsl numbers them.
constexpr std::array<DType, 11> kFormats = {DType::F32,  DType::F16,  DType::BF16, DType::Q4_0,
                                            DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0,
                                            DType::Q4_K, DType::Q5_K, DType::Q6_K};

struct BlockPart {
  int64_t at = 0, bytes = 0;  // in a block of the file
};
#define ASSAY_PART(format, field) \
  BlockPart { offsetof(quant::Block##format, field), sizeof(quant::Block##format::field) }
template <class Block>
constexpr BlockPart kScaleAndMin = {offsetof(Block, d), sizeof(Block::d) + sizeof(Block::m)};

// In the order in which a row has them on the device.
constexpr std::array kQ4_0 = {ASSAY_PART(Q4_0, nibbles), ASSAY_PART(Q4_0, d)};
constexpr std::array kQ4_1 = {ASSAY_PART(Q4_1, nibbles), kScaleAndMin<quant::BlockQ4_1>};
constexpr std::array kQ5_0 = {ASSAY_PART(Q5_0, nibbles), ASSAY_PART(Q5_0, high_bits), ASSAY_PART(Q5_0, d)};
constexpr std::array kQ5_1 = {ASSAY_PART(Q5_1, nibbles), ASSAY_PART(Q5_1, high_bits), kScaleAndMin<quant::BlockQ5_1>};
constexpr std::array kQ8_0 = {ASSAY_PART(Q8_0, q), ASSAY_PART(Q8_0, d)};
constexpr std::array kQ6_K = {ASSAY_PART(Q6_K, nibbles), ASSAY_PART(Q6_K, high_bits), ASSAY_PART(Q6_K, sub_scales),
                              ASSAY_PART(Q6_K, d)};
#undef ASSAY_PART

// What shaders know of blocks, held to the parts: bytes of a block in part i, and in all before it.
namespace glsl {
using uint = uint32_t;
#include "backend/vulkan/linear/block_layout.glsl"
}  // namespace glsl
template <size_t n>
constexpr bool is_part(const std::array<BlockPart, n>& parts, size_t i, int64_t before, int64_t bytes) {
  for (size_t j = 0; j < i; ++j) before -= parts[j].bytes;
  return before == 0 && parts[i].bytes == bytes;
}
static_assert(is_part(kQ4_0, 0, 0, glsl::kBlock4Quants) && is_part(kQ4_1, 0, 0, glsl::kBlock4Quants) &&
              is_part(kQ4_0, 1, glsl::kBlock4Scales, glsl::kScaleBytes) &&
              is_part(kQ4_1, 1, glsl::kBlock4Scales, glsl::kScaleAndMinBytes));
static_assert(is_part(kQ5_0, 0, 0, glsl::kBlock4Quants) && is_part(kQ5_1, 0, 0, glsl::kBlock4Quants) &&
              is_part(kQ5_0, 1, glsl::kBlock5High, glsl::kBlock5HighBytes) &&
              is_part(kQ5_1, 1, glsl::kBlock5High, glsl::kBlock5HighBytes) &&
              is_part(kQ5_0, 2, glsl::kBlock5Scales, glsl::kScaleBytes) &&
              is_part(kQ5_1, 2, glsl::kBlock5Scales, glsl::kScaleAndMinBytes));
static_assert(is_part(kQ8_0, 0, 0, glsl::kBlock8Quants) && is_part(kQ8_0, 1, glsl::kBlock8Scales, glsl::kScaleBytes));
static_assert(is_part(kQ6_K, 0, 0, glsl::kQ6KLowBytes) && is_part(kQ6_K, 1, glsl::kQ6KHigh, glsl::kQ6KHighBytes) &&
              is_part(kQ6_K, 2, glsl::kQ6KScales, glsl::kQ6KScalesBytes) &&
              is_part(kQ6_K, 3, glsl::kQ6KFactor, glsl::kScaleBytes));
template <class Block>
constexpr bool kBeginsWithHead = offsetof(Block, d) == 0 && offsetof(Block, d_min) == 2 &&
                                 offsetof(Block, sub_scales) == 4 && sizeof(Block::sub_scales) == 12;
static_assert(kBeginsWithHead<quant::BlockQ4_K> && sizeof(quant::BlockQ4_K) == glsl::kQ4KBytes &&
              offsetof(quant::BlockQ4_K, nibbles) == glsl::kQ4KLow);
static_assert(kBeginsWithHead<quant::BlockQ5_K> && sizeof(quant::BlockQ5_K) == glsl::kQ5KBytes &&
              offsetof(quant::BlockQ5_K, high_bits) == glsl::kQ5KHigh &&
              offsetof(quant::BlockQ5_K, nibbles) == glsl::kQ5KLow);

// None: blocks as they are.
std::span<const BlockPart> parts_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::Q4_0: return kQ4_0;
    case DType::Q4_1: return kQ4_1;
    case DType::Q5_0: return kQ5_0;
    case DType::Q5_1: return kQ5_1;
    case DType::Q8_0: return kQ8_0;
    case DType::Q6_K: return kQ6_K;
    default: return {};
  }
}

}  // namespace

int number_of_format(DType dtype) noexcept {
  const auto found = std::find(kFormats.begin(), kFormats.end(), dtype);
  return found == kFormats.end() ? -1 : static_cast<int>(found - kFormats.begin());
}

int64_t device_row_bytes(const tensor::TensorView& matrix) noexcept {
  constexpr int64_t kAlignment = 16;
  return base::round_up(matrix.row_bytes(), kAlignment);
}

int64_t device_bytes(const tensor::TensorView& matrix) noexcept {
  return matrix.row_bytes() == 0
             ? 0
             : static_cast<int64_t>(matrix.data.size()) / matrix.row_bytes() * device_row_bytes(matrix);
}

int64_t lay_out_rows(const tensor::TensorView& matrix, int64_t first, std::span<std::byte> to) noexcept {
  const int64_t row_bytes = matrix.row_bytes(), stride = device_row_bytes(matrix);
  const int64_t n =
      std::min(static_cast<int64_t>(matrix.data.size()) / row_bytes - first, static_cast<int64_t>(to.size()) / stride);
  const std::span<const BlockPart> parts = parts_of(matrix.dtype);
  const int64_t block_bytes = tensor::traits(matrix.dtype).block_bytes;
  for (int64_t i = 0; i < n; ++i) {
    const std::byte* from = matrix.data.data() + (first + i) * row_bytes;
    std::byte* place = to.data() + i * stride;
    std::memset(place + row_bytes, 0, static_cast<size_t>(stride - row_bytes));
    if (parts.empty()) std::memcpy(place, from, static_cast<size_t>(row_bytes));
    for (const BlockPart& part : parts) {
      for (int64_t b = 0; b < row_bytes / block_bytes; ++b, place += part.bytes)
        std::memcpy(place, from + b * block_bytes + part.at, static_cast<size_t>(part.bytes));
    }
  }
  return n;
}

}  // namespace assay::backend::vulkan
