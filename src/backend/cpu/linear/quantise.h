// Kernels that turn activations into integers.
#pragma once

#include "quant/activations.h"
#include "tensor/view.h"

namespace assay::backend::cpu {

// Rows [row_begin, row_end) of x to the same rows of out; the bits of quant::quantise_row_ref.
void quantise_rows_avx2(tensor::ConstMat x, const quant::Activations& out, int64_t row_begin, int64_t row_end) noexcept;
void quantise_rows_neon(tensor::ConstMat x, const quant::Activations& out, int64_t row_begin, int64_t row_end) noexcept;

}  // namespace assay::backend::cpu
