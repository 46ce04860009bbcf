// See matrices.h.
#include "backend/vulkan/linear/matrices.h"

#include <algorithm>
#include <array>
#include <cstring>

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
// In the order in which a row has them on the device. None: blocks as they are.
std::span<const BlockPart> parts_of(DType dtype) noexcept {
  static constexpr std::array<BlockPart, 2> kQ4_0 = {{{2, 16}, {0, 2}}}, kQ4_1 = {{{4, 16}, {0, 4}}},
                                            kQ8_0 = {{{2, 32}, {0, 2}}};
  static constexpr std::array<BlockPart, 3> kQ5_0 = {{{6, 16}, {2, 4}, {0, 2}}}, kQ5_1 = {{{8, 16}, {4, 4}, {0, 4}}};
  static constexpr std::array<BlockPart, 4> kQ6_K = {{{0, 128}, {128, 64}, {192, 16}, {208, 2}}};
  switch (dtype) {
    case DType::Q4_0:
      return kQ4_0;
    case DType::Q4_1:
      return kQ4_1;
    case DType::Q5_0:
      return kQ5_0;
    case DType::Q5_1:
      return kQ5_1;
    case DType::Q8_0:
      return kQ8_0;
    case DType::Q6_K:
      return kQ6_K;
    default:
      return {};
  }
}

}  // namespace

int number_of_format(DType dtype) noexcept {
  const auto found = std::find(kFormats.begin(), kFormats.end(), dtype);
  return found == kFormats.end() ? -1 : static_cast<int>(found - kFormats.begin());
}

int64_t device_row_bytes(const tensor::TensorView& matrix) noexcept {
  constexpr int64_t kAlignment = 16;
  return (matrix.row_bytes() + kAlignment - 1) / kAlignment * kAlignment;
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
