// The table behind dtype.h.
#include "tensor/dtype.h"

#include <array>

namespace assay::tensor {
namespace {

constexpr std::array kTraits = {
    DTypeTraits{DType::F32, "F32", 1, 4},
    DTypeTraits{DType::F16, "F16", 1, 2},
    DTypeTraits{DType::Q4_0, "Q4_0", 32, 18},
    DTypeTraits{DType::Q4_1, "Q4_1", 32, 20},
    DTypeTraits{DType::Q5_0, "Q5_0", 32, 22},
    DTypeTraits{DType::Q5_1, "Q5_1", 32, 24},
    DTypeTraits{DType::Q8_0, "Q8_0", 32, 34},
    DTypeTraits{DType::Q2_K, "Q2_K", 256, 84},
    DTypeTraits{DType::Q3_K, "Q3_K", 256, 110},
    DTypeTraits{DType::Q4_K, "Q4_K", 256, 144},
    DTypeTraits{DType::Q5_K, "Q5_K", 256, 176},
    DTypeTraits{DType::Q6_K, "Q6_K", 256, 210},
    DTypeTraits{DType::IQ2_XXS, "IQ2_XXS", 256, 66},
    DTypeTraits{DType::IQ2_XS, "IQ2_XS", 256, 74},
    DTypeTraits{DType::IQ3_XXS, "IQ3_XXS", 256, 98},
    DTypeTraits{DType::IQ1_S, "IQ1_S", 256, 50},
    DTypeTraits{DType::IQ4_NL, "IQ4_NL", 32, 18},
    DTypeTraits{DType::IQ3_S, "IQ3_S", 256, 110},
    DTypeTraits{DType::IQ2_S, "IQ2_S", 256, 82},
    DTypeTraits{DType::IQ4_XS, "IQ4_XS", 256, 136},
    DTypeTraits{DType::I8, "I8", 1, 1},
    DTypeTraits{DType::I16, "I16", 1, 2},
    DTypeTraits{DType::I32, "I32", 1, 4},
    DTypeTraits{DType::I64, "I64", 1, 8},
    DTypeTraits{DType::F64, "F64", 1, 8},
    DTypeTraits{DType::BF16, "BF16", 1, 2},
    DTypeTraits{DType::TQ1_0, "TQ1_0", 256, 54},
    DTypeTraits{DType::TQ2_0, "TQ2_0", 256, 66},
    DTypeTraits{DType::MXFP4, "MXFP4", 32, 17},
};

}  // namespace

const DTypeTraits* find_traits(uint32_t dtype_number) noexcept {
  for (const DTypeTraits& entry : kTraits) {
    if (static_cast<uint32_t>(entry.dtype) == dtype_number) return &entry;
  }
  return nullptr;
}

const DTypeTraits& traits(DType dtype) noexcept { return *find_traits(static_cast<uint32_t>(dtype)); }

}  // namespace assay::tensor
