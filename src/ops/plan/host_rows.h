// The rows of a run in host memory, as the references of row ops see them: float for the contract's own arithmetic,
// double for the oracle.
#pragma once

#include <cstdint>
#include <span>

#include "ops/attention/rope_table.h"
#include "ops/plan/plan.h"

namespace assay::ops {

template <class T>
struct HostRows {
  const Plan* plan = nullptr;
  std::span<T* const> values;                   // per value of the plan: its first row; rows follow one another
  std::span<const float* const> small_weights;  // per weight: norms and biases as f32, else null
  std::span<const RopeTable> rope_tables;       // per rope of the plan; none for double
  std::span<const int32_t> tokens, positions;   // of the batch
  std::span<const int64_t> selected;            // the token behind each row of RowDomain::outputs

  int64_t width(ValueId id) const noexcept { return plan->values[static_cast<size_t>(id)].width; }
  T* row(ValueId id, int64_t i) const noexcept { return values[static_cast<size_t>(id)] + i * width(id); }
  const float* small(WeightId id) const noexcept {
    return id == kNone ? nullptr : small_weights[static_cast<size_t>(id)];
  }
  int64_t token_of(ValueId id, int64_t i) const noexcept {
    return plan->values[static_cast<size_t>(id)].domain == RowDomain::outputs ? selected[static_cast<size_t>(i)] : i;
  }
  int32_t position_of(ValueId id, int64_t i) const noexcept { return positions[static_cast<size_t>(token_of(id, i))]; }
};

}  // namespace assay::ops
