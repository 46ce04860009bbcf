// The formats as a table to search; blocks.h lists the block formats.
#include <algorithm>
#include <array>

#include "quant/blocks.h"
#include "quant/float.h"

namespace assay::quant {
namespace {

using tensor::DType;

template <class... F32, class... F256>
constexpr auto make_table(BlockFormats<F32...>, BlockFormats<F256...>) noexcept {
  return std::array{Format{DType::F32, Activation::f32, false, &decode_f32, nullptr, nullptr, nullptr},
                    Format{DType::F16, Activation::f32, false, &decode_f16, nullptr, nullptr, nullptr},
                    Format{DType::BF16, Activation::f32, false, &decode_bf16, nullptr, nullptr, nullptr},
                    make_format_32<typename F32::Block>(F32::kDType)...,
                    make_format_256<typename F256::Block>(F256::kDType)...};
}
constexpr auto kFormats = make_table(Formats32{}, Formats256{});

}  // namespace

const Format* find_format(tensor::DType dtype) noexcept {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& f) { return f.dtype == dtype; });
  return found == kFormats.end() ? nullptr : &*found;
}

std::span<const Format> all_formats() noexcept { return kFormats; }

void decode_row(const Format& format, const std::byte* row, int64_t n_elements, float* out) noexcept {
  const tensor::DTypeTraits& t = tensor::traits(format.dtype);
  for (int64_t j = 0; j < n_elements; j += t.block_elements, row += t.block_bytes) format.decode(row, out + j);
}

}  // namespace assay::quant
