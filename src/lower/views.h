// Values that lie in the memory of others, so that nothing is copied: a slice (ops/rows/slice.h) whose readers can step
// over what lies between its runs, and the parts of a join (ops/rows/join.h) whose writers can leave room for the other
// part. Found once, before lifetimes, from what a device's kernels take.
//
//   slice of x      x  | q0 . g0 | q1 . g1 | ..     run i of y begins at x + i * run_stride + first
//   join of a, b    y  | a0 . b0 | a1 . b1 | ..     run i of a begins at y + i * run_stride
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/index.h"
#include "lower/links.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/plan.h"
#include "ops/rows/join.h"
#include "ops/rows/slice.h"

namespace assay::lower {

// Whether the op's kernel reads x, or writes its output, where runs of so many floats lie apart; run as wide as the
// value: rows lie apart, each in one piece. Unset: none does.
struct ViewRules {
  using Takes = std::function<bool(const ops::Op&, ops::ValueId, int64_t run)>;
  Takes reads, writes;
};

struct View {
  ops::ValueId base = ops::kNone;  // in whose memory it lies, which is in nobody's; kNone: in its own
  int64_t first = 0;               // floats of a row of the base ahead of it
};

struct Views {
  std::vector<View> of;                   // per value
  std::vector<ops::ValueLayout> layouts;  // per value
  std::vector<bool> holds_others;         // per value: others lie in its memory
  std::vector<ops::ValueId> placed_in;    // per value: the slice's input, the join that a view was made for; kNone

  bool is_view(ops::ValueId value) const noexcept { return of[at(value)].base != ops::kNone; }
  // Its memory is not its own alone.
  bool is_shared(ops::ValueId value) const noexcept { return is_view(value) || holds_others[at(value)]; }
};

// Of a slice: its rows are those of its input. A slice may be copied and still be a view: of the join that it is a part
// of.
bool is_view_of_input(const ops::Slice& slice, const Views& views) noexcept;
struct PartsInPlace {
  bool a, b;
};
PartsInPlace parts_in_place(const ops::Join& join, const Views& views) noexcept;

// A value that a run's caller is given, or that no op writes, has memory of its own.
Views find_views(const ops::Plan& plan, const Links& links, const ViewRules& rules);

}  // namespace assay::lower
