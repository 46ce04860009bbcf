// The kernels of the table of ops (op_table.h) by name, for those who start them.
#pragma once

namespace assay::backend::cuda {

enum class OpKernel {
  // An op alone, in the order of what starts them (runtime/run_ops.cpp).
  embed,
  embed_position,
  rms_norm,
  layer_norm,
  l2_norm,
  rope,
  kv_store,
  attention,
  add,
  gate,
  clamped_gate,
  activate,
  softcap,
  scale,
  clamp,
  add_columns,
  scale_columns,
  slice,
  join,
  select_outputs,
  route,
  expert_scale,
  expert_sum,
  causal_conv,
  delta_walk,
  delta,
  delta_in_memory,
  selective_scan,
  gather,
  // Fusion groups (rows/fused.h).
  norm_warps,
  norm_small_blocks,
  norm_blocks,
  heads_plain,
  heads_lanes,
  heads,
  gate_with_integers,
  integers,
};
inline constexpr int kNOpsAlone = static_cast<int>(OpKernel::norm_warps);

}  // namespace assay::backend::cuda
