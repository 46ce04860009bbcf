// Which values an op reads and which it writes: what liveness, schedules, observers and checks ask of every op.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/plan/plan.h"

namespace assay::ops {

struct OpValues {
  std::vector<ValueId> inputs;  // in the order of the record's fields
  ValueId output = kNone;       // kNone: of an op that only stores
};
OpValues values_of(const Op& op);

// The state that an op of Role::state keeps, as an index into Plan::states; else kNone.
int32_t state_of(const Op& op);
// The layer of the cache that an op reads or writes, as an index into Plan::cache_layers; else kNone.
int32_t cache_layer_of(const Op& op);
// Plan::states of which those stay whose op (an index into Plan::ops) is wanted, in their places; the others are empty.
std::vector<StateLayer> states_of(const Plan& plan, const std::function<bool(int32_t i_op)>& wants);

// KvStore, SelectOutputs: computes nothing, what it hands on was computed by another op.
bool passes_on(const Op& op) noexcept;

// Layers of the model; of these some may keep nothing in a cache of their own.
int32_t n_layers(const Plan& plan) noexcept;

// What an OpObserver is given: the value the op wrote; of those that only pass on the first that they read.
ValueId announced_value(const Op& op);

// "linear", "rms_norm", ...
const char* kind_name(const Op& op) noexcept;

}  // namespace assay::ops
