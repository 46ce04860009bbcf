// Starts the kernel of a row of the table of products (kernels/linear_table.h).
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/kernels/launching.h"
#include "backend/cuda/kernels/linear_table.h"
#include "backend/cuda/linear/linear.h"
#include "quant/activations.h"

namespace assay::backend::cuda {

LinearMatrix as_linear_matrix(const Matrix& w) noexcept;

// Products that the row takes together, of one token or more. form: of batch tiles, as the plan has it (LinearRange).
void launch_linears(const LinearRow& row, const BatchForm& form, std::span<const LinearTask> linears,
                    const quant::Activations& x, int64_t n_tokens, const Launching& on);

}  // namespace assay::backend::cuda
