// Ops that go through a sequence token by token and keep a state of fixed size in place of a cache that grows:
// causal_conv.h, delta_rule.h, selective_scan.h. What one of them keeps is cut into units (heads, some columns) that do
// not touch one another, so that threads can share them out. Bits: a token's row depends on the state before it and on
// its own inputs alone, and the state after it likewise: strictly one token after the other, whatever the batch. So
// prefill, decode and every cut of a prompt give the same bits, without a contract about chunks.
#pragma once

#include <cstdint>

#include "num/device.h"
#include "ops/plan/plan.h"

namespace assay::ops {

// Consecutive tokens of one sequence, as rows of the values, and where its state of the op lies:
// [n_units][unit_floats].
template <class T>
struct StateRun {
  int64_t begin = 0, end = 0;
  T* state = nullptr;
};

// Which of a sequence's n_slots places, from 1 on, a checkpoint after `position` tokens has: that of the power of two
// in position / interval (state_store.h). 0: none lies there.
ASSAY_FN int checkpoint_slot(int64_t position, int64_t interval, int n_slots) noexcept {
  if (n_slots == 0 || position == 0 || position % interval != 0) return 0;
  int slot = 1;
  for (int64_t n = position / interval; n % 2 == 0 && slot < n_slots; n /= 2) ++slot;
  return slot;
}

}  // namespace assay::ops
