// A Plan turned into what the GPU runs: fusion groups (lower/), each a kernel, and for decode of one token groups of
// them. Made once per executor; no bit depends on it.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/runtime/usual.h"
#include "backend/cuda/schedule/decode_groups.h"
#include "lower/lowering.h"
#include "ops/plan/executor.h"
#include "ops/plan/plan.h"

namespace assay::backend::cuda {

struct Schedule : lower::Lowering {
  std::vector<DecodeGroup> decode;      // all fusion groups, in groups; the steps in which lifetimes count
  std::vector<int32_t> column_linears;  // ops: the products of groups `of_own_columns`
  lower::Lifetimes lifetimes;
  std::vector<bool> read_by_other_groups;   // read_outside for decode's groups, whose products read floats
  std::vector<ops::ValueId> selected_from;  // per value: of which it is the selected rows, or kNone
};

Schedule make_schedule(const ops::Plan& plan, const ops::ExecutorOptions& options, const Card& card);

}  // namespace assay::backend::cuda
