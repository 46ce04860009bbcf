// The kernels of expert_any.cuh for the formats with blocks of 32, and their door.
#include "backend/cuda/experts/expert_any.cuh"
#include "backend/cuda/linear/formats.h"

namespace assay::backend::cuda {

void expert_linear_any(const ExpertTask& task, const quant::Activations& x, const Queue& queue) {
  if (x.kind == quant::Activation::a256) return expert_any_256(task, x, queue);
  visit_format(quant::Formats32{}, task.w->dtype,
               [&]<class F>(F) { launch_any_expert<typename F::Block, 32>(task, x, queue); });
}

}  // namespace assay::backend::cuda
