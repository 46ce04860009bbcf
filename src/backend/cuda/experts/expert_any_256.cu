// The kernels of expert_any.cuh for the formats with superblocks of 256.
#include "backend/cuda/experts/expert_any.cuh"
#include "backend/cuda/linear/formats.h"

namespace assay::backend::cuda {

void expert_any_256(const ExpertTask& task, const quant::Activations& x, const Queue& queue) {
  visit_format(quant::Formats256{}, task.w->dtype,
               [&]<class F>(F) { launch_any_expert<typename F::Block, 256>(task, x, queue); });
}

}  // namespace assay::backend::cuda
