// The GPU at work as the table of kernels sees it.
#pragma once

#include "backend/cuda/kernels/card.h"

namespace assay::backend::cuda {

Card this_card();

}  // namespace assay::backend::cuda
