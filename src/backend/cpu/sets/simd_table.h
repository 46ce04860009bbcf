// The small kernels of the instruction set that the including file is compiled for, in the table.
#pragma once

#include <utility>

#include "backend/cpu/rows/attention_simd.h"
#include "backend/cpu/rows/index_simd.h"
#include "backend/cpu/rows/row_simd.h"
#include "backend/cpu/rows/state_simd.h"

namespace assay::backend::cpu {
namespace {

template <size_t... i>
static void fill_activations(KernelFunctions& kernels, std::index_sequence<i...>) noexcept {
  ((kernels.gate[i] = gate_rows<static_cast<ops::ActivationFunction>(i)>), ...);
  ((kernels.activate[i] = activate_rows<static_cast<ops::ActivationFunction>(i)>), ...);
}

static void fill_table(KernelFunctions& kernels) noexcept {
  kernels.rms_norm = rms_norm;
  kernels.rope = rope;
  kernels.add = add_rows;
  fill_activations(kernels, std::make_index_sequence<ops::kNActivationFunctions>());
  kernels.clamped_gate = clamped_gate;
  kernels.softcap = softcap_rows;
  kernels.expert_sum = expert_sum;
  kernels.layer_norm = layer_norm;
  kernels.causal_conv = causal_conv;
  kernels.delta_rule = delta_rule;
  kernels.selective_scan = selective_scan;
  kernels.store_key = store_key;
  kernels.store_value = store_value;
  kernels.attention = attention;
  kernels.attention_scratch_bytes = attention_scratch;
  kernels.attention_segment = attention_segment;
  kernels.attention_merge = attention_merge;
  kernels.index_scores = index_scores;
}

}  // namespace
}  // namespace assay::backend::cpu
