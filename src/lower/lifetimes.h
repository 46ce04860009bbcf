// From which step to which each value of a plan and each quantised twin needs its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.h"
#include "lower/links.h"
#include "lower/twins.h"
#include "lower/views.h"
#include "ops/plan/plan.h"

namespace assay::lower {

// Where a device runs the ops, in steps of its own; what one step reads and writes lives together.
struct Steps {
  std::vector<int32_t> of_op;    // the step that runs the op
  std::vector<int32_t> of_twin;  // the step that makes the twin
  int32_t n = 0;
};

struct Lifetime {
  int32_t first_step = 0, last_step = 0;  // that writes it, that reads it last
  ops::ValueId in_place_of = ops::kNone;  // takes over the memory of this value, which nobody reads any more
};

struct Lifetimes {
  std::vector<Lifetime> values, twins;

  void extend(ops::ValueId value, int32_t step) noexcept {
    int32_t& last = values[at(value)].last_step;
    if (last < step) last = step;
  }
};

// A value lives until its last reader, also where that reads its twin, so that an observer still finds it; what a run's
// caller is given, until steps.n. What nobody writes is there from step 0 on.
Lifetimes find_lifetimes(const ops::Plan& plan, const Links& links, const Twins& twins, const Steps& steps);

// Memory that several values lie in lives from the first of them that is written to the last one that is read.
void extend_to_views(const Views& views, Lifetimes& lifetimes);

// For a device whose ops run one after the other in a step and may write where they read (ops/plan/record.h): sets
// in_place_of where an op's step is the last of an input of the same width, and nobody else reads that in this step.
// Inputs written in the same step keep their memory, so that an observer can still see them, and so do values that lie
// in one memory (views.h).
void share_in_place(const ops::Plan& plan, const Links& links, const Twins& twins, const Steps& steps,
                    const Views& views, Lifetimes& lifetimes);

}  // namespace assay::lower
