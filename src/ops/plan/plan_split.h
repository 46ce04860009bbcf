// Cuts a Plan at borders of layers into parts that executors run one after the other, each part a Plan of its own: what
// a model split between devices is made of. Nothing is computed otherwise: at a border one value (the residual stream)
// is handed over as f32 rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/plan/plan.h"

namespace assay::ops {

struct PlanPart {
  Plan plan;         // its input, handed and logits say what it is given and what it gives
  int32_t i_op = 0;  // of the whole plan: the part's first op; the others follow in the same order
};

// borders: ascending numbers of layers; part i begins with layer borders[i - 1]. What precedes the layers belongs to
// the first part, what follows them (the output) to the last. Views of weights point where those of `whole` do.
// Error(bad_request) for borders that leave a part without layers, Error(unsupported) where not exactly one value of
// all tokens crosses a border, or where a layer reads a cache that a layer of another part keeps.
std::vector<PlanPart> split_plan(const Plan& whole, std::span<const int32_t> borders);

}  // namespace assay::ops
