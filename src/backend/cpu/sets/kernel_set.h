// What a fast kernel set is made of, and the list of those that this build has: sets_x86.cpp, sets_aarch64.cpp, or
// sets_none.cpp for processors without one.
#pragma once

#include <span>

#include "backend/cpu/linear/linear_table.h"
#include "backend/cpu/sets/kernels.h"
#include "backend/cpu/sets/peak.h"

namespace assay::backend::cpu {

struct KernelSetParts {
  Kernels set;
  bool (*can_run)() noexcept;
  std::span<const LinearRow> linear_rows;  // those of higher rank first; the reference stands behind them
  int superblock_lanes;  // of a group, as its matrix-vector kernels read superblocks' activations (GemvLayout); 0: they
                         // do not
  // As linear.h's, the bits of quant::quantise_row_ref.
  void (*quantise_rows)(tensor::ConstMat x, const quant::Activations& out, int64_t row_begin, int64_t row_end) noexcept;
  void (*add_kernels)(KernelFunctions& kernels) noexcept;  // overwrites the slots that the set fills
  PeakLoops (*peak_loops)() noexcept = nullptr;            // null: not known
  // Null: never. Whether its matrix-vector kernel for the format reads both planes as one number (GemvOperand::joined).
  bool (*joins_planes)(tensor::DType dtype) noexcept = nullptr;
};

// From the least to the best.
std::span<const KernelSetParts> sets_of_build() noexcept;

// Null for the reference, which stands behind every set.
const KernelSetParts* functions_of(Kernels set) noexcept;

}  // namespace assay::backend::cpu
