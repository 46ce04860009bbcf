// Decoding of matrices whose blocks are cut into parts, several threads a block.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/matrix.h"

namespace assay::backend::cuda {

// y = rows rows[i] (or row_begin + i, where rows is null) decoded, times scale where `scaled`. False, and nothing done, for other matrices.
bool decode_cut(const Matrix& m, const int32_t* rows, int64_t row_begin, int64_t n_rows, bool scaled, float scale, float* y,
                cudaStream_t stream);

}  // namespace assay::backend::cuda
