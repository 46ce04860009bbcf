// The loops of the matrix-matrix kernels over panels, shared by the instruction sets: as many rows as the second-level
// cache holds are unpacked into scratch, then all tokens run against them. Included by kernel files only; everything
// here is local to the file that includes it.
#pragma once

#include "backend/cpu/gemm/gemm.h"

namespace assay::backend::cpu {
namespace {

inline int64_t smaller(int64_t a, int64_t b) noexcept { return a < b ? a : b; }

// Rows of a panel: a multiple of kStep, at least kStep.
template <int64_t kStep>
inline int64_t panel_rows(int64_t bytes_of_step) noexcept {
  const int64_t steps = kPanelBytes / bytes_of_step;
  return (steps < 1 ? 1 : steps) * kStep;
}

// The rows of a group. Rows past the end repeat the last one; their results are not stored.
template <int64_t kRowsOfGroup>
inline void rows_of_group(const LinearTask& task, int64_t row, int64_t row_end, const std::byte** p) noexcept {
  for (int64_t i = 0; i < kRowsOfGroup; ++i) p[i] = task.weights + smaller(row + i, row_end - 1) * task.row_bytes;
}

// build(row, row_end, i_group): unpacks the group of rows at `row`, the i-th of its panel.   run(row_begin, row_end): all tokens against the panel.
template <int64_t kRowsOfGroup, class Build, class Run>
inline void walk_panels(int64_t row_begin, int64_t row_end, int64_t rows, const Build& build, const Run& run) noexcept {
  for (int64_t begin = row_begin; begin < row_end; begin += rows) {
    const int64_t end = smaller(begin + rows, row_end);
    for (int64_t row = begin; row < end; row += kRowsOfGroup) build(row, end, (row - begin) / kRowsOfGroup);
    run(begin, end);
  }
}

}  // namespace
}  // namespace assay::backend::cpu
