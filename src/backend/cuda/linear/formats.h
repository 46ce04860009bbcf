// From a type of the file to code compiled for its block.
#pragma once

#include "quant/blocks.h"

namespace assay::backend::cuda {

// Calls visit(BlockFormat) with the entry of `dtype`; false where the list has none.
template <class Visit, class... F>
bool visit_format(quant::BlockFormats<F...>, tensor::DType dtype, Visit&& visit) {
  return ((F::kDType == dtype ? (visit(F{}), true) : false) || ...);
}

}  // namespace assay::backend::cuda
