// What a lowering has to know of a device: how much one of its kernels takes, and which ops it has kernels for.
// What stands here by default is a device that fuses nothing and has a kernel for everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/plan/plan.h"
#include "ops/rows/gate.h"

namespace assay::lower {

struct DeviceLimits {
  int64_t norm_width_max = 0;      // the widest row that one kernel normalises, with the sums and norms ahead of it
  int64_t head_dim_max = 0;        // the largest heads that one kernel normalises, rotates and stores in the cache
  size_t products_max = 1;         // of one row that one kernel makes
  bool experts_read_twins = true;  // else their kernels make integers of the rows that each expert gets
  // Whether its kernel takes the row as floats though the weights are quantised. Unset: no.
  std::function<bool(const ops::Linear&)> reads_floats = {};
  // Whether the kernel of such a gate, of such an attention, makes its value's twin too. Unset: no.
  std::function<bool(const ops::Gate&)> gate_makes_twin = {};
  std::function<bool(const ops::Attention&)> attention_makes_twin = {};
  // Whether an op that no fusion group has taken up runs here; else its reference is borrowed. Unset: each.
  std::function<bool(const ops::Op&)> has_kernel = {};
};

}  // namespace assay::lower
