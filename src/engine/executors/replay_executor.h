// Cuts sequences of a plan with states to any length: the executor inside goes back to a checkpoint
// (ops/state/state_store.h), and the tokens from there to the cut, which this one remembers, are run again before the
// sequence is run on or looked at, unseen by observers and with no logits. The bits are those of a sequence that never
// was longer.
#pragma once

#include <memory>

#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::engine {

// The inner executor itself where the plan has no states. Both live as long as what is returned.
std::unique_ptr<ops::Executor> with_replay(std::unique_ptr<ops::Executor> inner, const ops::Plan& plan,
                                           const ops::ExecutorOptions& options);

}  // namespace assay::engine
