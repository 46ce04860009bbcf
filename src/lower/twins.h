// Quantised twins: rows of a value as integers, made once for all products that read the value with one kind of
// activations.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"
#include "quant/activations.h"

namespace assay::lower {

struct Twin {
  ops::ValueId x = ops::kNone;  // whose rows it holds
  quant::Activation kind = quant::Activation::a32;
};

struct Twins {
  std::vector<Twin> list;           // in the order of their first readers in the plan
  std::vector<int32_t> read_by_op;  // per op: the twin that it reads, an index into list; kNone: it reads floats

  int32_t find(ops::ValueId x, quant::Activation kind) const noexcept;  // kNone: there is none
  // Of several of a value the one that is made with the value, where a kernel can do that: the kind of superblocks.
  int32_t find_any(ops::ValueId x) const noexcept;
};

// experts_read: products of experts read twins too; else their device makes integers of the rows that each expert gets.
// reads_floats, where set: products that read none. No twins at all where weights are decoded
// (ExecutorOptions::weights_as_f32).
Twins find_twins(const ops::Plan& plan, const ops::ExecutorOptions& options, bool experts_read,
                 const std::function<bool(const ops::Linear&)>& reads_floats = {});

}  // namespace assay::lower
