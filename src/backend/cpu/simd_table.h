// The small kernels of the instruction set that the including file is compiled for, in the table.
#pragma once

#include "backend/cpu/attention_simd.h"
#include "backend/cpu/row_simd.h"

namespace assay::backend::cpu {
namespace {

static void fill_table(Kernels& kernels) noexcept {
  kernels.rms_norm = rms_norm;
  kernels.rope = rope;
  kernels.add = add_rows;
  kernels.gate[static_cast<size_t>(ops::ActivationFunction::silu)] = gate_silu;
  kernels.gate[static_cast<size_t>(ops::ActivationFunction::gelu_tanh)] = gate_gelu_tanh;
  kernels.store_key = store_key;
  kernels.store_value = store_value;
  kernels.attention = attention;
  kernels.attention_scratch_bytes = attention_scratch;
  kernels.attention_segment = attention_segment;
  kernels.attention_merge = attention_merge;
}

}  // namespace
}  // namespace assay::backend::cpu
