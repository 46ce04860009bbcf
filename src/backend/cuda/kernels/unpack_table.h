// The table of the GPU's kernels that make floats, or halves, of a matrix's rows: of tables of embeddings, and of weights
// that are decoded ahead of their products.
//
//   name             matrices                                     kernel
//   rows by eights   cut into parts, floats of 8 n columns        linear/eight_elements.cuh, 8 elements a thread
//   rows of floats   floats                                       rows/row_kernels.cu, an element a thread
//   rows by blocks   blocks                                       the same, tiles/fast_halves.cu, a block a thread
//
// The first row that takes a matrix wins; resolved once for every weight, when a plan is lowered. What ranks logits
// makes the next run's rows too where a table's are by eights.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace assay::backend::cuda {

struct UnpackMatrix {
  tensor::DType dtype = tensor::DType::F32;
  int64_t cols = 0;
  bool is_cut = false;  // its blocks are cut into parts (linear/matrix.h)
};

enum class UnpackKernel { eights, floats, blocks };

struct UnpackRow {
  std::string_view name;  // unique in the table
  UnpackKernel kernel;
  bool (*takes)(const UnpackMatrix& matrix) noexcept;
};

std::span<const UnpackRow> unpack_table() noexcept;  // those of higher rank first
const UnpackRow& find_unpack_row(const UnpackMatrix& matrix) noexcept;

}  // namespace assay::backend::cuda
