// The ops that have a kernel of their own, each alone (runtime/run_ops.cpp). What is not among them, and in no group of
// several ops, is borrowed.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_position.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/expert_sum.h"
#include "ops/linear/gather.h"
#include "ops/linear/route.h"
#include "ops/plan/plan.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/clamp.h"
#include "ops/rows/clamped_gate.h"
#include "ops/rows/gate.h"
#include "ops/rows/join.h"
#include "ops/rows/l2_norm.h"
#include "ops/rows/layer_norm.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "ops/state/causal_conv.h"
#include "ops/state/delta_rule.h"
#include "ops/state/selective_scan.h"

namespace assay::backend::cuda {

template <class... R>
struct OpList {};
using KernelOps =
    OpList<ops::Embed, ops::EmbedPosition, ops::RmsNorm, ops::LayerNorm, ops::L2Norm, ops::Rope, ops::KvStore,
           ops::Attention, ops::Add, ops::Gate, ops::ClampedGate, ops::Activate, ops::Softcap, ops::Scale, ops::Clamp,
           ops::AddColumns, ops::ScaleColumns, ops::Slice, ops::Join, ops::SelectOutputs, ops::Route, ops::ExpertScale,
           ops::ExpertSum, ops::CausalConv, ops::DeltaRule, ops::SelectiveScan, ops::Gather>;

bool has_op_kernel(const ops::Op& op) noexcept;

}  // namespace assay::backend::cuda
