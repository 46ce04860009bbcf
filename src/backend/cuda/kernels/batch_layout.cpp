// See batch_layout.h.
#include "backend/cuda/kernels/batch_layout.h"

#include "backend/cuda/kernels/linear_table.h"

namespace assay::backend::cuda {
namespace {

// Of half the multiprocessors where there are superblocks, of three quarters where there are blocks of 32: blocks of
// threads for so many are enough.
constexpr int kFill256 = 4, kFill32 = 3;

constexpr int64_t kBlocksMax = 1 << 14;  // of a row: no form has room for so many

bool fits(const BatchForm& form, const LinearProducts& products) noexcept {
  if (products.n_blocks() > kBlocksMax) return false;
  for (const LinearMatrix& m : products.matrices) {
    if (m.rows < kBatchRows) return false;
  }
  return batch_bytes(form, products) <= kBatchSharedMax;
}

bool fills(const BatchForm& form, const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept {
  int64_t n_rounds = 0;
  for (const LinearMatrix& m : products.matrices) n_rounds += (m.rows + kBatchRows - 1) / kBatchRows;
  n_rounds = (n_rounds + kBatchWarps - 1) / kBatchWarps * ((n_tokens + form.tokens() - 1) / form.tokens());
  const int fill = products.kind == quant::Activation::a256 ? kFill256 : kFill32;
  return form.cluster == 8 || fill * n_rounds * form.cluster >= 2 * (card.n_multiprocessors - 4);
}

std::optional<BatchForm> with_cluster(BatchForm form, const LinearProducts& products, int64_t n_tokens,
                                      const Card& card) noexcept {
  for (; form.cluster <= 8; form.cluster *= 2) {
    if (fills(form, products, n_tokens, card) && fits(form, products)) return form;
  }
  return std::nullopt;
}

}  // namespace

int batch_bytes(const BatchForm& form, const LinearProducts& products) noexcept {
  int row_bytes = 0;
  bool has_min = false;
  for (const LinearMatrix& m : products.matrices) {
    row_bytes = std::max(row_bytes, batch_row_bytes(m.dtype));
    has_min = has_min || batch_has_min(m.dtype);
  }
  const int n = batch_blocks_most(form, static_cast<int>(products.n_blocks()));
  const int rings = products.kind == quant::Activation::a256 ? BatchPlaces256(form, n, has_min).rings
                                                             : BatchPlaces32(form, n, has_min).rings;
  return rings + kBatchWarps * form.stages * kBatchRows * row_bytes;
}

// Rows of many blocks leave room for fewer columns. Many columns have no room for many chunks.
std::optional<BatchForm> batch_form(const LinearProducts& products, int64_t n_tokens, const Card& card) noexcept {
  const int planes = products.planes;
  const int64_t n_columns = (n_tokens + 7) / 8 * 8 * planes;
  const auto find = [&](int n, int stages, int per_processor, int cluster) {
    return with_cluster({planes, n, stages, per_processor, cluster}, products, n_tokens, card);
  };
  if (n_columns <= 8) return find(1, products.kind == quant::Activation::a256 ? 3 : 2, 2, 1);
  if (n_columns <= 16) return find(2, 2, 2, 1);
  if (n_columns > 32) {
    if (const auto form = find(8, 2, 1, 4)) return form;
  }
  if (const auto form = find(4, 2, 1, 2)) return form;
  return find(2, 2, 2, 4);
}

}  // namespace assay::backend::cuda
