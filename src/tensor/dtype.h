// The element types of tensors in a GGUF file, numbered as the file numbers them.
// Source: the ggml_type enumeration of the GGUF specification. Numbers absent here were removed from the format or are
// not served.
#pragma once

#include <cstdint>
#include <string_view>

namespace assay::tensor {

enum class DType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
};

// How a type lies in the file: every block_elements consecutive elements of a row take block_bytes.
struct DTypeTraits {
  DType dtype;
  std::string_view name;  // as llama.cpp prints it, e.g. "Q4_K"
  int64_t block_elements;
  int64_t block_bytes;
};

// The traits of a type number read from a file; nullptr for a number that is not served.
const DTypeTraits* find_traits(uint32_t dtype_number) noexcept;
const DTypeTraits& traits(DType dtype) noexcept;

}  // namespace assay::tensor
