// A Plan turned into steps for the CPU: between two steps all threads meet, inside one they need not. Made once per
// executor.
//   rows     ops that work row by row, all of one row domain; a thread runs all of them on its rows. At the end of the
//            list stand the values whose rows must be quantised for the linears that follow.
//   linears  all Linear ops whose inputs are ready, split together by rows of their weights.
//   experts  one product of experts.
//   attention one Attention op.
//   gather   one Gather op, for which all shards of a model meet.
//   cached   one op that reads the KV cache in a way of its own.
//   state    one op that keeps a state: every thread takes some of its units through all tokens.
// An op runs as soon as its inputs are there, which may be before an op that stands ahead of it in the plan; no bit
// depends on that order.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "backend/cpu/rows/cached_table.h"
#include "backend/cpu/rows/row_table.h"
#include "backend/cpu/rows/state_table.h"
#include "lower/lifetimes.h"
#include "lower/twins.h"
#include "lower/views.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cpu {

struct RowWork {
  int32_t op = ops::kNone;     // index into Plan::ops, or kNone:
  int32_t twin = ops::kNone;   // to make, an index into Schedule::twins
  int64_t floats = 0;          // that it writes per row: what it costs
  RowKernel kernel = nullptr;  // of the op
};

struct LinearWork {
  int32_t op = ops::kNone;
  int32_t twin = ops::kNone;  // that it reads; kNone: the floats
};

struct Step {
  enum class Kind { rows, linears, experts, attention, cached, gather, state };
  Kind kind = Kind::rows;
  ops::RowDomain domain = ops::RowDomain::tokens;  // of its rows
  std::vector<RowWork> rows;                       // Kind::rows
  std::vector<LinearWork> linears;                 // Kind::linears
  int32_t op = ops::kNone;                         // of the other kinds
  int32_t state = ops::kNone;                      // Kind::state: index into Plan::states, and the op's kernel
  StateKernel state_kernel = nullptr;
  CachedKernel cached_kernel;  // Kind::cached
};

struct Schedule {
  std::vector<Step> steps;
  lower::Twins twins;  // of linears; experts make their own (linear/expert_step.h)
  lower::Views views;
  lower::Lifetimes lifetimes;
};

// with_views: else slices and joins are copied, as tests want to compare.
Schedule make_schedule(const ops::Plan& plan, const ops::ExecutorOptions& options, bool with_views = true);

// The ops of a step as indices into Plan::ops, in the order they run; none where it only quantises.
std::vector<int32_t> ops_of(const Step& step);

}  // namespace assay::backend::cpu
