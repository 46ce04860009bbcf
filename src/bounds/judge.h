// The verdict over the elements of one op's output: how many are outside their bound, where the
// worst one is, and the sums that its figures are made of.
#pragma once

#include <cstdint>
#include <span>

#include "assay/verify.h"
#include "base/thread_pool.h"
#include "bounds/local_op.h"

namespace assay::bounds {

// What was found and what was expected for columns first_column .. of an output of `width`;
// expected has its own n_columns.
struct Judged {
  std::span<const double> found;  // [n_rows, width]
  int64_t n_rows = 0, width = 0, first_column = 0, n_columns = 0;
  const Expected& expected;
  std::span<const double> chain;  // [n_rows, n_columns]; empty: none
};

struct Worst {
  double ratio = -1;
  int64_t row = 0, column = 0;
  double found = 0, expected = 0, bound = 0;
};

// Over any number of batches.
struct Tally {
  int64_t n_values = 0, n_outside = 0, n_non_finite = 0;
  Worst worst;
  double error = 0, bound = 0, expected = 0;  // sums of squares, of elements where all are finite
  double declared_error = 0, declared_bound = 0;
  double chain_error = 0, chain = 0;
  double found = 0, largest = 0;
  bool has_declared = false, has_chain = false;

  void add(const Tally& other) noexcept;
  void fill(OpFigures& figures) const;
};

Tally judge(const Judged& judged, base::ThreadPool& pool);

}  // namespace assay::bounds
