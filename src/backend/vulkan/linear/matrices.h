// Matrices as the device keeps them: rows at multiples of 16 bytes, and like parts of a row's blocks together where the
// file's blocks are no multiple of 16 bytes (linear/formats.glsl has the picture). The bits of a weight stay what they
// are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace assay::backend::vulkan {

// The formats that shaders have, by their number there; -1: none.
int number_of_format(tensor::DType dtype) noexcept;

int64_t device_row_bytes(const tensor::TensorView& matrix) noexcept;
int64_t device_bytes(const tensor::TensorView& matrix) noexcept;
// Rows first .. of the matrix, as many as fit into `to`, which has whole rows. Returns their number.
int64_t lay_out_rows(const tensor::TensorView& matrix, int64_t first, std::span<std::byte> to) noexcept;

}  // namespace assay::backend::vulkan
