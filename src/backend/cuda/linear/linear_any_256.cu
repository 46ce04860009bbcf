// The kernels of linear_any.cuh for the formats with superblocks of 256.
#include "backend/cuda/linear/formats.h"
#include "backend/cuda/linear/linear_any.cuh"

namespace assay::backend::cuda {

void linear_any_256(tensor::DType dtype, const AnyTask& task, cudaStream_t stream) {
  visit_format(quant::Formats256{}, dtype,
               [&]<class F>(F) { launch_any_format<typename F::Block, 256>(task, stream); });
}

}  // namespace assay::backend::cuda
