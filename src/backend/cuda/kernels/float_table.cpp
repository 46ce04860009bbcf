// See float_table.h.
#include "backend/cuda/kernels/float_table.h"

#include <algorithm>

#include "quant/format.h"

namespace assay::backend::cuda {
namespace {

bool is_for_tiles(const FloatProduct& p, const Card& card) noexcept {
  return !p.is_fast && card.is_hopper() && float_tiles_serve(p.cols);
}
bool is_for_skinny(const FloatProduct& p, const Card&) noexcept { return !p.is_fast && float_skinny_serves(p.cols); }
bool is_exact(const FloatProduct& p, const Card&) noexcept { return !p.is_fast; }
bool is_in_fast_tiles(const FloatProduct& p, const Card& card) noexcept {
  return p.is_fast && card.has_groups() && p.packs_rows;
}
bool is_decoded_in_fast_tiles(const FloatProduct& p, const Card& card) noexcept {
  return is_in_fast_tiles(p, card) && fast_decodes(p.w.dtype);
}
bool is_fast_and_cut(const FloatProduct& p, const Card&) noexcept { return p.is_fast && p.w.is_cut; }
bool is_fast_and_decoded(const FloatProduct& p, const Card&) noexcept { return p.is_fast && fast_decodes(p.w.dtype); }
bool is_fast_product(const FloatProduct& p, const Card&) noexcept { return p.is_fast; }

constexpr FloatRow kFloatRows[] = {
    {"float tiles", FloatKernel::tiles, kFloatSkinnyTokensMax + 1, &is_for_tiles},
    {"float skinny", FloatKernel::skinny, 2, &is_for_skinny},
    {"floats", FloatKernel::any, 1, &is_exact},
    {"fast tiles of decoded rows", FloatKernel::fast_tiles, kFastSkinnyTokensMax + 1, &is_decoded_in_fast_tiles},
    {"fast tiles", FloatKernel::fast_tiles, kFastSkinnyTokensMax + 1, &is_in_fast_tiles},
    {"fast skinny of blocks", FloatKernel::fast_skinny_of_blocks, 1, &is_fast_and_cut},
    {"fast skinny of decoded rows", FloatKernel::fast_skinny, 1, &is_fast_and_decoded},
    {"fast skinny", FloatKernel::fast_skinny, 1, &is_fast_product},
};

const FloatRow* row_for(const FloatProduct& p, int64_t n_tokens, const Card& card) noexcept {
  const auto* found = std::ranges::find_if(
      kFloatRows, [&](const FloatRow& row) { return row.tokens_min <= n_tokens && row.takes(p, card); });
  return found == std::end(kFloatRows) ? nullptr : found;
}

}  // namespace

std::span<const FloatRow> float_table() noexcept { return kFloatRows; }

const FloatRow* find_float_row(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kFloatRows, name, &FloatRow::name);
  return found == std::end(kFloatRows) ? nullptr : found;
}

FloatChoice::FloatChoice(const FloatProduct& product, const Card& card) {
  for (const int64_t begin : {int64_t{1}, int64_t{2}, kFloatSkinnyTokensMax + 1, kFastSkinnyTokensMax + 1}) {
    add({begin, kAnyTokens, row_for(product, begin, card)});
  }
}

bool fast_decodes(tensor::DType dtype) noexcept {
  const quant::Format* format = quant::find_format(dtype);
  return format != nullptr && format->activation != quant::Activation::f32;
}
bool fast_serves(const ops::ExecutorOptions& options, tensor::DType dtype, int64_t cols) noexcept {
  if (!options.fast) return false;
  return fast_decodes(dtype) ? options.halves && fast_serves_floats(tensor::DType::F16, cols)
                             : fast_serves_floats(dtype, cols);
}

}  // namespace assay::backend::cuda
