// See op_list.h.
#include "backend/cuda/kernels/op_list.h"

namespace assay::backend::cuda {
namespace {

template <class... R>
bool is_among(OpList<R...>, const ops::Op& op) noexcept {
  return (op.is<R>() || ...);
}

}  // namespace

bool has_op_kernel(const ops::Op& op) noexcept { return is_among(KernelOps{}, op); }

}  // namespace assay::backend::cuda
