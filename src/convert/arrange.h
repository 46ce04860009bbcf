// What stands where: the rows of a new tensor by rows and columns of the folder's.
#pragma once

#include <span>
#include <vector>

#include "convert/draft.h"

namespace assay::converting {

struct HeadCounts {
  int64_t n_heads = 0, n_kv_heads = 0, n_state_groups = 0;
};

struct Arranged {
  std::vector<int64_t> shape;  // of one source
  std::vector<Slice> slices;   // of all, in their order
  bool as_column = false;      // rows of the slices are single elements
};

// Of sources of one shape. Error(bad_file) where the shape does not allow it.
Arranged arrange(As as, std::span<const StoredTensor* const> sources, const HeadCounts& heads);

}  // namespace assay::converting
