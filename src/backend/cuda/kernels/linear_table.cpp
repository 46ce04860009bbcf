// See linear_table.h.
#include "backend/cuda/kernels/linear_table.h"

#include <algorithm>
#include <climits>

#include "backend/cuda/kernels/batch_layout.h"
#include "backend/cuda/kernels/tile_layout.h"

namespace assay::backend::cuda {
namespace {

using quant::Activation;
using tensor::DType;

template <class Is>
bool all_of(const LinearProducts& products, Is&& is) noexcept {
  return std::ranges::all_of(products.matrices, is);
}
bool has(const LinearProducts& products, DType dtype) noexcept {
  return std::ranges::any_of(products.matrices, [&](const LinearMatrix& m) { return m.dtype == dtype; });
}
bool are_cut(const LinearProducts& products) noexcept {
  return all_of(products, [](const LinearMatrix& m) { return m.is_cut; });
}
bool are_alike(const LinearProducts& products) noexcept {
  return all_of(products, [&](const LinearMatrix& m) { return m.dtype == products.matrices.front().dtype; });
}
// Kernels count rows, or their blocks, in 32 bits.
bool count_rows(const LinearProducts& products, int64_t each) noexcept {
  return all_of(products, [&](const LinearMatrix& m) { return m.rows * each <= INT32_MAX / 2; });
}

// Few columns are faster in batch tiles; of rows of so many superblocks, where few rows are many blocks, fewer.
constexpr int kWideColumnsMin = 33, kWideColumnsOfLongRows = 17, kLongRow = 20;
bool are_wide_columns(const LinearProducts& p, int64_t n_tokens, const Card& card) noexcept {
  if (!card.has_groups() || p.kind != Activation::a256 || !are_cut(p) || !count_rows(p, p.n_blocks())) return false;
  if (n_tokens * p.planes < (p.n_blocks() < kLongRow ? kWideColumnsMin : kWideColumnsOfLongRows)) return false;
  return !(has(p, DType::Q4_K) && has(p, DType::Q5_K));  // no kernel has both
}

// Planes of tokens that are one tile of half the width.
constexpr int kFewColumns = 64, kColumns = 128;
bool are_few_wide_columns(const LinearProducts& p, int64_t n_tokens, const Card& card) noexcept {
  return n_tokens * p.planes <= kFewColumns && are_wide_columns(p, n_tokens, card);
}

// Blocks of 32: whether tiles of 128 rows x 128 columns take less time: in us, from what both were measured to take on
// an H200.
bool group_tiles_are_faster(const LinearProducts& p, int64_t n_tokens, int n_processors) noexcept {
  constexpr int64_t kColumnsMin = 48;
  constexpr double kTileBlock[] = {0.33, 0.2}, kTileStart = 3, kStart = 5,
                   kProductsEach = 55e6;  // of a tile, by planes; products a us
  const int64_t n_columns = n_tokens * p.planes;
  if (n_columns < kColumnsMin) return false;
  int64_t n_tiles = 0;
  double n_products = 0;
  for (const LinearMatrix& m : p.matrices) {
    n_tiles += (m.rows + 127) / 128 * ((n_columns + 127) / 128);
    n_products +=
        32.0 * static_cast<double>(p.n_blocks()) * static_cast<double>(m.rows) * static_cast<double>(n_columns);
  }
  const int64_t n_rounds = (n_tiles + n_processors - 1) / n_processors;
  return static_cast<double>(n_rounds * p.n_blocks()) * kTileBlock[p.planes - 1] + kTileStart <
         n_products / kProductsEach + kStart;
}
bool are_batched(const LinearProducts& p, int64_t n_tokens, const Card& card) noexcept {
  if (!card.has_groups() || !are_cut(p) || !count_rows(p, p.n_blocks())) return false;
  if (p.kind == Activation::a32 && group_tiles_are_faster(p, n_tokens, card.n_multiprocessors)) return false;
  return batch_form(p, n_tokens, card).has_value();
}

bool are_vectors(const LinearProducts& p, int64_t, const Card&) noexcept { return are_cut(p) && count_rows(p, 1); }

bool are_of_one_format(const LinearProducts& p) noexcept { return are_cut(p) && are_alike(p) && count_rows(p, 1); }
bool are_in_groups(const LinearProducts& p, int64_t, const Card& card) noexcept {
  return card.has_groups() && are_of_one_format(p);
}
bool are_few_in_groups(const LinearProducts& p, int64_t n_tokens, const Card& card) noexcept {
  return p.kind == Activation::a256 && n_tokens * p.planes <= kFewColumns && are_in_groups(p, n_tokens, card);
}
bool are_in_tiles(const LinearProducts& p, int64_t, const Card& card) noexcept {
  return are_of_one_format(p) && tile_bytes(p.matrices.front().dtype, p.planes) <= card.shared_bytes_max;
}

bool is_one(const LinearProducts& p, int64_t, const Card&) noexcept { return p.matrices.size() == 1; }

constexpr LinearRow kRows[] = {
    {"group tiles of wide batches, 64 columns", LinearKernel::group_tiles, 2, kBatchTokensMax, &are_few_wide_columns,
     kFewColumns},
    {"group tiles of wide batches", LinearKernel::group_tiles, 2, kBatchTokensMax, &are_wide_columns, kColumns},
    {"batch tiles", LinearKernel::batch_tiles, 2, kBatchTokensMax, &are_batched},
    {"vector", LinearKernel::vector, 1, kGemvTokensMax, &are_vectors},
    {"group tiles, 64 columns", LinearKernel::group_tiles, kGemvTokensMax + 1, kAnyTokens, &are_few_in_groups,
     kFewColumns},
    {"group tiles", LinearKernel::group_tiles, kGemvTokensMax + 1, kAnyTokens, &are_in_groups, kColumns},
    {"tiles", LinearKernel::tiles, kGemvTokensMax + 1, kAnyTokens, &are_in_tiles},
    {"any format", LinearKernel::any_format, 1, kAnyTokens, &is_one},
};

// No row tells numbers of tokens beyond this one apart.
constexpr int64_t kTokensTold = kBatchTokensMax + 1;

const LinearRow* first_that_takes(const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept {
  const auto* found =
      std::ranges::find_if(kRows, [&](const LinearRow& row) { return takes(row, products, n_tokens, card); });
  return found == std::end(kRows) ? nullptr : found;
}

BatchForm form_for(const LinearRow* row, const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept {
  if (row == nullptr || row->kernel != LinearKernel::batch_tiles) return {};
  return batch_form(products, n_tokens, card).value_or(BatchForm{});  // the row takes only what has one
}

LinearRange range_for(const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept {
  LinearRange range;
  range.tokens_min = n_tokens;
  range.together = first_that_takes(products, n_tokens, card);
  range.forms[0] = form_for(range.together, products, n_tokens, card);
  for (size_t i = 0; range.together == nullptr && i < products.matrices.size(); ++i) {
    LinearProducts one = products;
    one.matrices = products.matrices.subspan(i, 1);
    range.each[i] = first_that_takes(one, n_tokens, card);
    range.forms[i] = form_for(range.each[i], one, n_tokens, card);
  }
  return range;
}

}  // namespace

std::span<const LinearRow> linear_table() noexcept { return kRows; }

const LinearRow* find_linear_row(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kRows, name, &LinearRow::name);
  return found == std::end(kRows) ? nullptr : found;
}

bool takes(const LinearRow& row, const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept {
  return row.tokens_min <= n_tokens && n_tokens <= row.tokens_max && row.takes(products, n_tokens, card);
}

LinearChoice::LinearChoice(const LinearProducts& products, const Card& card) {
  for (int64_t n = 1; n <= kTokensTold; ++n) add(range_for(products, n, card));
}

int tile_bytes(DType dtype, int planes) noexcept {
  const int pitch = tile_pitch(dtype);
  if (pitch == 0) return 0;
  const bool has_min = batch_has_min(dtype),
             is_256 = dtype == DType::Q4_K || dtype == DType::Q5_K || dtype == DType::Q6_K;
  return (is_256 ? tile_layout_256(pitch, planes, has_min) : tile_layout_32(pitch, planes, has_min)).bytes();
}

}  // namespace assay::backend::cuda
