// Matrix products of the CPU backend: weight rows in their file format times activation rows, contract dot/1
// (quant/activations.h) or Lanes32 in mode f32. Every kernel set gives the bits of the reference, for any number of
// tokens and any split of the rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/kernels.h"
#include "quant/activations.h"
#include "quant/format.h"
#include "tensor/view.h"

namespace assay::backend::cpu {

// The sets that this processor and operating system can run: the reference first, the best one last.
std::span<const Kernels> kernel_sets() noexcept;
inline Kernels best_kernel_set() noexcept { return kernel_sets().back(); }
inline Kernels resolved(Kernels set) noexcept { return set == Kernels::best ? best_kernel_set() : set; }
inline bool can_run(Kernels set) noexcept {
  return std::ranges::find(kernel_sets(), resolved(set)) != kernel_sets().end();
}

// y[t, r] = dot(weights row r, activation row t) + bias[r]. Views into memory of the caller, which must outlive the
// calls.
struct LinearTask {
  const quant::Format* format = nullptr;
  const std::byte* weights = nullptr;  // row r begins at weights + r * row_bytes; any alignment
  int64_t row_bytes = 0;
  int64_t k = 0;           // elements of a row
  bool as_f32 = false;     // float weights, or any weights in mode f32: x_f32 counts, else x
  quant::Activations x;    // n_tokens rows of format->activation
  tensor::ConstMat x_f32;  // [n_tokens, k]
  int64_t n_tokens = 0;
  const float* bias = nullptr;  // f32 [rows] or null
  tensor::Mat y;                // [n_tokens, rows]
};

// For one product alone, by the set's kernel for so many tokens (linear_table.h): writes y[:, row_begin..row_end).
// scratch: aligned to 64.
void linear_rows(Kernels set, const LinearTask& task, int64_t row_begin, int64_t row_end, std::byte* scratch);
size_t linear_scratch_bytes(Kernels set, const LinearTask& task);  // holds for any number of tokens up to the task's

// Quantises rows [row_begin, row_end) of x [n, out.k] into the same rows of out; the bits of quant::quantise_row_ref.
void quantise_rows(Kernels set, tensor::ConstMat x, const quant::Activations& out, int64_t row_begin,
                   int64_t row_end) noexcept;

}  // namespace assay::backend::cpu
