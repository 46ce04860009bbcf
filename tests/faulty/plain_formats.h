// Weight formats decoded from their published layouts, element by element, with no code of src/quant: what the faulty
// engine reads its weights with. Also half precision as arithmetic on doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "faulty/fault.h"
#include "tensor/view.h"

namespace assay::faults {

double half_at(const std::byte* bytes);  // IEEE binary16, little-endian
float to_half(float x);                  // rounded to nearest even; infinity beyond the range
uint16_t half_bits(float x);             // of an x that is a half
float to_bfloat16(float x);

// True for the types that decode_plain knows.
bool decodes(tensor::DType dtype);
// n elements of a row, from its first byte.
void decode_plain(tensor::DType dtype, const std::byte* row, int64_t n, float* out, Fault fault);
// A tensor whole: [rows, cols].
std::vector<float> decode_tensor(const tensor::TensorView& tensor, Fault fault);

}  // namespace assay::faults
