// See grid_tables.h.
#include "quant/encode/grid_tables.h"

#include "quant/codebooks.h"

namespace assay::quant::encode {
namespace {

template <int width, int n_rows, class Word>
constexpr GridTable<n_rows, width> laid_out(const Word (&rows)[n_rows], float factor) noexcept {
  GridTable<n_rows, width> table{};
  for (int row = 0; row < n_rows; ++row) {
    for (int j = 0; j < width; ++j) {
      table.level[row / 16][j][row % 16] =
          factor * static_cast<float>(static_cast<int8_t>((rows[row] >> (8 * j)) & 255));
    }
  }
  return table;
}

}  // namespace

constexpr GridTable<256, 8> kTableIq2Xxs = laid_out<8>(kGridIq2Xxs, 1);
constexpr GridTable<512, 8> kTableIq2Xs = laid_out<8>(kGridIq2Xs, 1);
constexpr GridTable<1024, 8> kTableIq2S = laid_out<8>(kGridIq2S, 1);
constexpr GridTable<256, 4> kTableIq3Xxs = laid_out<4>(kGridIq3Xxs, 1);
constexpr GridTable<512, 4> kTableIq3S = laid_out<4>(kGridIq3S, 1);
constexpr GridTable<2048, 8> kTableIq1S = laid_out<8>(kGridIq1S, 8);

}  // namespace assay::quant::encode
