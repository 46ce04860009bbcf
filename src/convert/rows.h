// Rows of a new file's tensor as floats, read from the folder: re-ordered, split, stacked, turned and shifted as the
// draft says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "convert/draft.h"

namespace assay::converting {

// One row of the output, `output.cols` floats. F16 and BF16 are widened exactly; a norm's 1 is added in the precision
// that its tensor has or, for BF16, in float32, as the checkpoint's own code does.
void read_row(const Output& output, int64_t row, float* x);
// Of an output with scales: one row of MXFP4 blocks as a GGUF file has them, output.cols / 32 * 17 bytes.
void read_packed_row(const Output& output, int64_t row, std::byte* bytes);

// Where a row of the output stands in the folder: for messages, and for giving back what was read.
struct Place {
  const StoredTensor* tensor = nullptr;
  int64_t row = 0;      // of the tensor, in rows of the output's width; the first one of a column's
  int64_t column = -1;  // 0 or more: a column of the block that begins at `row`
  const Slice* slice = nullptr;
};
Place place_of(const Output& output, int64_t row);

}  // namespace assay::converting
