// Which values an op reads and which it writes: what liveness, schedules, observers and checks ask of every op.
#pragma once

#include <vector>

#include "ops/plan.h"

namespace assay::ops {

struct OpValues {
  std::vector<ValueId> inputs;  // in the order of the record's fields
  ValueId output = kNone;       // kNone: KvStore
};
OpValues values_of(const Op& op);

// What an OpObserver is given: the value the op wrote; of KvStore and SelectOutputs, which only pass on, the first that they read.
ValueId announced_value(const Op& op);

// "linear", "rms_norm", ...
const char* kind_name(const Op& op) noexcept;

}  // namespace assay::ops
