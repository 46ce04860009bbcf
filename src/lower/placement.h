// Where values and their twins lie in one arena: what no longer lives gives its place to what comes later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lower/lifetimes.h"
#include "lower/twins.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "quant/activations.h"

namespace assay::lower {

struct Placement {
  std::vector<size_t> values, twins;  // offsets in bytes, multiples of the alignment but for views
  size_t bytes = 0;                   // of the arena
};

// Of runs of as many tokens and outputs as the options allow. views: null where every value has memory of its own; a
// view's offset is that of its first float.
Placement place_values(const ops::Plan& plan, const Twins& twins, const Lifetimes& lifetimes,
                       const ops::ExecutorOptions& options, size_t alignment, const Views* views = nullptr);
// The same of a device that lays its twins out in a way of its own: the bytes of each.
Placement place_values(const ops::Plan& plan, std::span<const size_t> twin_bytes, const Lifetimes& lifetimes,
                       const ops::ExecutorOptions& options, size_t alignment, const Views* views = nullptr);

// Rows of a value in the largest run.
int64_t rows_max(const ops::Plan& plan, ops::ValueId value, const ops::ExecutorOptions& options) noexcept;

// The same as addresses, once the arena has one.
struct Places {
  std::vector<float*> values;
  std::vector<quant::Activations> twins;
};
Places places_in(std::byte* arena, const Placement& placement, const ops::Plan& plan, const Twins& twins,
                 const ops::ExecutorOptions& options);

}  // namespace assay::lower
