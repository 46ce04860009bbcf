// See float_table.h.
#include "backend/cuda/kernels/float_table.h"

#include <algorithm>
#include <vector>

#include "quant/format.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {
namespace {

using Form = FloatForm;

bool is_for_tiles(const FloatProduct& p, const Card& card, const Form&) noexcept {
  return !p.is_fast && card.is_hopper() && are_tile_columns(p.cols);
}
// As many as have no more whole tiles than half of the multiprocessors.
int64_t tokens_of_few_tiles(const FloatProduct& p, const Card& card) noexcept {
  return card.n_multiprocessors / (2 * p.n_row_tiles) * kFloatTileTokens;
}
bool is_for_skinny(const FloatProduct& p, const Card&, const Form&) noexcept {
  return !p.is_fast && are_skinny_columns(p.cols);
}
bool is_for_rings(const FloatProduct& p, const Card& card, const Form& form) noexcept {
  return is_for_skinny(p, card, form) && form.bytes(p.weight_bytes()) <= card.shared_bytes_max;
}
bool is_exact(const FloatProduct& p, const Card&, const Form&) noexcept { return !p.is_fast; }
bool is_in_fast_tiles(const FloatProduct& p, const Card& card, const Form&) noexcept {
  return p.is_fast && card.has_groups() && p.packs_rows;
}
bool is_decoded_in_fast_tiles(const FloatProduct& p, const Card& card, const Form& form) noexcept {
  return is_in_fast_tiles(p, card, form) && fast_decodes(p.w.dtype);
}
bool is_fast_and_cut(const FloatProduct& p, const Card&, const Form&) noexcept { return p.is_fast && p.w.is_cut; }
// One token's row is in shared memory as halves.
bool is_fast_and_short(const FloatProduct& p, const Card& card, const Form& form) noexcept {
  return is_fast_and_cut(p, card, form) && p.cols <= kFastOneColumnsMax;
}
int64_t one_token(const FloatProduct&, const Card&) noexcept { return 1; }
bool is_fast_and_decoded(const FloatProduct& p, const Card&, const Form&) noexcept {
  return p.is_fast && fast_decodes(p.w.dtype);
}
bool is_fast_product(const FloatProduct& p, const Card&, const Form&) noexcept { return p.is_fast; }

constexpr int64_t kTilesMin = kFloatSkinnyTokensMax + 1, kFastTilesMin = kFastSkinnyTokensMax + 1;
// Rings of four stages where a card has the shared memory, or of two.
constexpr FloatRow kFloatRows[] = {
    {"float tiles, 16 tokens",
     FloatKernel::tiles,
     kTilesMin,
     &is_for_tiles,
     {kFloatTileTokensFew},
     &tokens_of_few_tiles},
    {"float tiles", FloatKernel::tiles, kTilesMin, &is_for_tiles, {kFloatTileTokens}},
    {"float skinny, 8 tokens", FloatKernel::skinny, 5, &is_for_rings, {8, 4}},
    {"float skinny, 8 tokens, short rings", FloatKernel::skinny, 5, &is_for_rings, {8, 2}},
    {"float skinny, 4 tokens", FloatKernel::skinny, 3, &is_for_rings, {4, 4}},
    {"float skinny, 4 tokens, short rings", FloatKernel::skinny, 3, &is_for_skinny, {4, 2}},
    {"float skinny, 2 tokens", FloatKernel::skinny, 2, &is_for_rings, {2, 4}},
    {"float skinny, 2 tokens, short rings", FloatKernel::skinny, 2, &is_for_skinny, {2, 2}},
    {"floats", FloatKernel::any, 1, &is_exact},
    {"fast tiles of decoded rows", FloatKernel::fast_tiles, kFastTilesMin, &is_decoded_in_fast_tiles},
    {"fast tiles", FloatKernel::fast_tiles, kFastTilesMin, &is_in_fast_tiles},
    {"fast skinny of blocks, 32 tokens", FloatKernel::fast_skinny_of_blocks, 17, &is_fast_and_cut, {32}},
    {"fast skinny of blocks, 16 tokens", FloatKernel::fast_skinny_of_blocks, 9, &is_fast_and_cut, {16}},
    {"fast skinny of blocks, one token", FloatKernel::fast_skinny_of_blocks, 1, &is_fast_and_short, {1}, &one_token},
    {"fast skinny of blocks, 8 tokens", FloatKernel::fast_skinny_of_blocks, 1, &is_fast_and_cut, {8}},
    {"fast skinny of decoded rows, 32 tokens", FloatKernel::fast_skinny, 17, &is_fast_and_decoded, {32}},
    {"fast skinny of decoded rows, 16 tokens", FloatKernel::fast_skinny, 9, &is_fast_and_decoded, {16}},
    {"fast skinny of decoded rows, 8 tokens", FloatKernel::fast_skinny, 1, &is_fast_and_decoded, {8}},
    {"fast skinny, 32 tokens", FloatKernel::fast_skinny, 17, &is_fast_product, {32}},
    {"fast skinny, 16 tokens", FloatKernel::fast_skinny, 9, &is_fast_product, {16}},
    {"fast skinny, 8 tokens", FloatKernel::fast_skinny, 1, &is_fast_product, {8}},
};

const FloatRow* row_for(const FloatProduct& p, int64_t n_tokens, const Card& card) noexcept {
  const auto* found = std::ranges::find_if(kFloatRows, [&](const FloatRow& row) {
    return row.tokens_min <= n_tokens && takes(row, p, card) &&
           (row.tokens_max == nullptr || n_tokens <= row.tokens_max(p, card));
  });
  return found == std::end(kFloatRows) ? nullptr : found;
}

}  // namespace

std::span<const FloatRow> float_table() noexcept { return kFloatRows; }

const FloatRow* find_float_row(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kFloatRows, name, &FloatRow::name);
  return found == std::end(kFloatRows) ? nullptr : found;
}

bool takes(const FloatRow& row, const FloatProduct& product, const Card& card) noexcept {
  return row.takes(product, card, row.form);
}

int FloatProduct::weight_bytes() const noexcept {
  const bool is_float = quant::find_format(w.dtype)->activation == quant::Activation::f32;
  return static_cast<int>(is_float ? tensor::traits(w.dtype).block_bytes : sizeof(float));
}

// Cuts at every bound of a row.
FloatChoice::FloatChoice(const FloatProduct& product, const Card& card) {
  std::vector<int64_t> cuts;
  for (const FloatRow& row : kFloatRows) {
    cuts.push_back(row.tokens_min);
    if (row.tokens_max != nullptr) cuts.push_back(std::max(row.tokens_max(product, card) + 1, row.tokens_min));
  }
  std::ranges::sort(cuts);
  for (const int64_t begin : cuts) add({begin, kAnyTokens, row_for(product, begin, card)});
}

bool fast_decodes(tensor::DType dtype) noexcept {
  const quant::Format* format = quant::find_format(dtype);
  return format != nullptr && format->activation != quant::Activation::f32;
}
bool is_multiplied_fast(const ops::ExecutorOptions& options, tensor::DType dtype, int64_t cols) noexcept {
  if (!options.fast) return false;
  return fast_decodes(dtype) ? options.halves && are_fast_halves(tensor::DType::F16, cols)
                             : are_fast_halves(dtype, cols);
}

}  // namespace assay::backend::cuda
