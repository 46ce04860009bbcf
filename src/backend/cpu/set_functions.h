// What a fast kernel set is made of, and the list of those that this build has: sets_x86.cpp, sets_aarch64.cpp, or sets_none.cpp for processors without one.
#pragma once

#include <span>

#include "backend/cpu/few.h"
#include "backend/cpu/gemv.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/peak.h"

namespace assay::backend::cpu {

struct SetFunctions {
  KernelSet set;
  bool (*can_run)() noexcept;
  // Null, or without run, where the set has no kernel for the task: another one of the set or the reference takes it. A task of floats
  // (LinearTask::as_f32) always has a matrix-matrix kernel; other tasks have one from more than kGemvColumnsMax columns on.
  GemvKernel (*gemv)(const LinearTask& task) noexcept;
  int superblock_lanes;  // of a group, as its matrix-vector kernels read superblocks' activations (GemvLayout); 0: they do not
  GemmKernel (*gemm)(const LinearTask& task) noexcept;
  // As linear.h's, the bits of quant::quantise_row_ref.
  void (*quantise_rows)(tensor::ConstMat x, const quant::Activations& out, int64_t row_begin, int64_t row_end) noexcept;
  void (*add_kernels)(Kernels& kernels) noexcept;  // overwrites the slots that the set fills
  PeakLoops (*peak_loops)() noexcept = nullptr;    // null: not known
  // Null, or without run, where the set has no kernel for few tokens; between its bounds it is taken before the others.
  FewKernel (*few)(const LinearTask& task) noexcept = nullptr;
  // Null: never. Whether its matrix-vector kernel for the format reads both planes as one number (GemvOperand::joined).
  bool (*joins_planes)(tensor::DType dtype) noexcept = nullptr;
};

// From the least to the best.
std::span<const SetFunctions> sets_of_build() noexcept;

// Null for the reference, which stands behind every set.
const SetFunctions* functions_of(KernelSet set) noexcept;

inline bool is_few_columns(const LinearTask& task) noexcept { return task.n_tokens * task.x.planes <= kGemvColumnsMax; }
inline bool is_a32(const LinearTask& task) noexcept { return task.format->activation == quant::Activation::a32; }

}  // namespace assay::backend::cpu
