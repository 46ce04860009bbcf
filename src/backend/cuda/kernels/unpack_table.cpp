// See unpack_table.h.
#include "backend/cuda/kernels/unpack_table.h"

#include <algorithm>

namespace assay::backend::cuda {
namespace {

using tensor::DType;

bool is_float(DType dtype) noexcept { return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16; }
bool is_by_eights(const UnpackMatrix& m) noexcept { return (m.is_cut || is_float(m.dtype)) && m.cols % 8 == 0; }
bool is_of_floats(const UnpackMatrix& m) noexcept { return is_float(m.dtype); }
bool is_of_blocks(const UnpackMatrix& m) noexcept { return !is_float(m.dtype); }

constexpr UnpackRow kUnpackRows[] = {
    {"rows by eights", UnpackKernel::eights, &is_by_eights},
    {"rows of floats", UnpackKernel::floats, &is_of_floats},
    {"rows by blocks", UnpackKernel::blocks, &is_of_blocks},
};

}  // namespace

std::span<const UnpackRow> unpack_table() noexcept { return kUnpackRows; }

const UnpackRow& find_unpack_row(const UnpackMatrix& matrix) noexcept {
  return *std::ranges::find_if(kUnpackRows, [&](const UnpackRow& row) { return row.takes(matrix); });
}

}  // namespace assay::backend::cuda
