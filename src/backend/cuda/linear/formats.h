// From a type of the file to code compiled for its block.
#pragma once

#include <type_traits>

#include "quant/blocks.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {

// Calls visit(BlockFormat) with the entry of `dtype`, which the list has.
template <class Visit, class... F>
void visit_format(quant::BlockFormats<F...>, tensor::DType dtype, Visit&& visit) {
  ((F::kDType == dtype ? visit(F{}) : void()), ...);
}
// Of any format of blocks: visit with its entry and the elements of its block, as a constant.
template <class Visit>
void visit_blocks(tensor::DType dtype, Visit&& visit) {
  if (tensor::traits(dtype).block_elements == 32) {
    visit_format(quant::Formats32{}, dtype,
                 [&]<class F>(F format) { visit(format, std::integral_constant<int, 32>{}); });
  } else {
    visit_format(quant::Formats256{}, dtype,
                 [&]<class F>(F format) { visit(format, std::integral_constant<int, 256>{}); });
  }
}

}  // namespace assay::backend::cuda
