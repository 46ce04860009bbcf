// The kernels of linear_any.cuh for the formats with blocks of 32, and their door.
#include "backend/cuda/linear/formats.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/linear/linear_any.cuh"

namespace assay::backend::cuda {

void linear_any_format(const Matrix& w, const quant::Activations& x, int64_t n_tokens, const float* bias, float* y,
                       cudaStream_t stream) {
  if (n_tokens == 0) return;
  const AnyTask task{w.parts, w.rows, w.cols / x.block(), x, n_tokens, bias, y};
  if (x.kind == quant::Activation::a256) return linear_any_256(w.dtype, task, stream);
  visit_format(quant::Formats32{}, w.dtype,
               [&]<class F>(F) { launch_any_format<typename F::Block, 32>(task, stream); });
}

}  // namespace assay::backend::cuda
