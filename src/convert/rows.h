// Rows of a new file's tensor as floats, read from the folder: re-ordered, split, stacked and shifted as the draft says.
#pragma once

#include <cstdint>

#include "convert/draft.h"

namespace assay::converting {

// One row of the output, `output.cols` floats. F16 and BF16 are widened exactly; a norm's 1 is added in the precision that its tensor has or, for BF16, in
// float32, as the checkpoint's own code does.
void read_row(const Output& output, int64_t row, float* x);

// The row of the folder's tensor where a row of the output stands: for messages.
struct Place {
  const StoredTensor* tensor = nullptr;
  int64_t row = 0;
};
Place place_of(const Output& output, int64_t row);

}  // namespace assay::converting
