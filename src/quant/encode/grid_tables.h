// The grids of the codebook formats as floats, laid out for a search that looks at sixteen rows at once: element j of
// rows 16 k to 16 k + 15 side by side. Made from codebook_grids.h.
#pragma once

namespace assay::quant::encode {

template <int n_rows, int width>
struct GridTable {
  float level[n_rows / 16][width][16];
};

extern const GridTable<256, 8> kTableIq2Xxs;
extern const GridTable<512, 8> kTableIq2Xs;
extern const GridTable<1024, 8> kTableIq2S;
extern const GridTable<256, 4> kTableIq3Xxs;
extern const GridTable<512, 4> kTableIq3S;
extern const GridTable<2048, 8> kTableIq1S;  // eight times the levels -1, 0, 1: the shift of an eighth is 1

}  // namespace assay::quant::encode
