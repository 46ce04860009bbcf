// What every kernel's launch is given beside its task.
#pragma once

#include "backend/cuda/kernels/card.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

struct Launching {
  const Card& card;
  const Hopper& hopper;
  const Queue& queue;
};

}  // namespace assay::backend::cuda
