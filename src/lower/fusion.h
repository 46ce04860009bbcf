// Fusion groups: the ops of a plan that a device runs together as one kernel, in an order in which each finds what it
// reads. No bit depends on them.
#pragma once

#include <cstdint>
#include <vector>

#include "lower/device.h"
#include "lower/links.h"
#include "lower/twins.h"
#include "ops/plan/plan.h"

namespace assay::lower {

struct FusionGroup {
  enum class Kind {
    op,         // one op alone
    quantise,   // a value's twin alone
    norm,       // [rms_norm,] [add,] rms_norm over whole rows [, twin]
    heads,      // [rms_norm of heads,] rope of q and k, kv_store
    gate,       // gate, twin
    attention,  // attention [, twin]
    linears,    // products of the same activations
    experts,    // one product by the experts of each token, alone
    borrowed,   // one op that has no kernel on the device: its reference runs on the host
  };
  Kind kind = Kind::op;
  std::vector<int32_t> ops;   // in the plan's order, in which an observer sees them
  int32_t twin = ops::kNone;  // what the group makes; of linears and experts: what they read, kNone: the floats
  // Of norm and heads: which op is which, kNone where there is none.
  int32_t pre_norm = ops::kNone, add = ops::kNone, norm = ops::kNone;
  int32_t q_norm = ops::kNone, q_rope = ops::kNone, k_norm = ops::kNone, k_rope = ops::kNone, store = ops::kNone;
};

// Whether the group's twin is what it reads.
constexpr bool reads_twin(FusionGroup::Kind kind) noexcept {
  return kind == FusionGroup::Kind::linears || kind == FusionGroup::Kind::experts;
}

// Every op in one group, every twin made by one. Error(unsupported) where an op waits for a value that no op writes.
std::vector<FusionGroup> find_groups(const ops::Plan& plan, const Links& links, const Twins& twins,
                                     const DeviceLimits& device);

// Per value: whether a group other than the one that makes it reads its floats, or a run's caller is given them.
std::vector<bool> find_read_outside(const ops::Plan& plan, const Links& links, const Twins& twins,
                                    const std::vector<FusionGroup>& groups);

// Per value: the one of which it is the selected rows, or kNone.
std::vector<ops::ValueId> find_selected(const ops::Plan& plan);

}  // namespace assay::lower
