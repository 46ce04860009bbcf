// The rows of a run in host memory, as the references of row ops see them: float for the contract's own arithmetic,
// double for the oracle.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention/rope_table.h"
#include "ops/plan/plan.h"

namespace assay::ops {

// Where the rows of a value lie: n runs of `run` floats each, run i of row t at floats t * stride + i * run_stride. One
// that has memory of its own has rows of one piece that follow one another; others may lie in that (lower/views.h).
struct ValueLayout {
  int64_t stride = 0, run = 0, run_stride = 0;

  static ValueLayout rows_of(int64_t width) noexcept { return {width, width, width}; }
  bool is_whole() const noexcept { return run_stride == run; }                           // a row is one piece
  bool is_dense(int64_t width) const noexcept { return stride == width && is_whole(); }  // all rows are
  // Floats of a row ahead of a column, and columns from there to the end of its piece.
  int64_t place(int64_t column) const noexcept {
    return is_whole() ? column : column / run * run_stride + column % run;
  }
  int64_t left(int64_t column, int64_t width) const noexcept {
    return is_whole() ? width - column : run - column % run;
  }
};

template <class T>
struct HostRows {
  const Plan* plan = nullptr;
  std::span<T* const> values;                   // per value of the plan: its first row
  std::span<const float* const> small_weights;  // per weight: norms and biases as f32, else null
  std::span<const RopeTable> rope_tables;       // per rope of the plan; none for double
  std::span<const int32_t> tokens, positions;   // of the batch
  std::span<const int64_t> selected;            // the tokens whose logits are wanted
  std::span<const ValueLayout> layouts = {};    // per value; none: rows of one piece that follow one another

  int64_t width(ValueId id) const noexcept { return plan->values[static_cast<size_t>(id)].width; }
  T* row(ValueId id, int64_t i) const noexcept {
    return values[static_cast<size_t>(id)] +
           i * (layouts.empty() ? width(id) : layouts[static_cast<size_t>(id)].stride);
  }
  // A column where a run begins, of a head say; rows that are not told so are of one piece.
  T* column(ValueId id, int64_t i, int64_t first) const noexcept {
    return row(id, i) + (layouts.empty() ? first : layouts[static_cast<size_t>(id)].place(first));
  }
  const float* small(WeightId id) const noexcept {
    return id == kNone ? nullptr : small_weights[static_cast<size_t>(id)];
  }
  int64_t token_of(ValueId id, int64_t i) const noexcept {
    return plan->values[static_cast<size_t>(id)].domain.token_of(i, selected);
  }
  int32_t position_of(ValueId id, int64_t i) const noexcept { return positions[static_cast<size_t>(token_of(id, i))]; }
};

}  // namespace assay::ops
