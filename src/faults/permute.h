// The permutation of a head's rows between RoPE's two pairings: a file whose pairs are neighbours
// (2i, 2i + 1) holds the rows of one whose pairs are halves (i, i + d/2) in another order.
#pragma once

#include <cstdint>

namespace assay::faults::dictionary {

// The row that stands at row r afterwards. head_rows: rows of one head, even.
inline int64_t permuted_row(int64_t r, int64_t head_rows, bool to_neighbours) noexcept {
  const int64_t head = r / head_rows, i = r % head_rows, half = head_rows / 2;
  return head * head_rows + (to_neighbours ? i % 2 * half + i / 2 : i % half * 2 + i / half);
}

}  // namespace assay::faults::dictionary
