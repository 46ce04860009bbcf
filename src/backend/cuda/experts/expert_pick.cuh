// Which rows a pair of token and rank multiplies (expert_linear.h), on the device. Pairs are counted in 32 bits: as many
// rows of floats no memory holds.
#pragma once

#include "backend/cuda/experts/expert_linear.h"

namespace assay::backend::cuda {

struct ExpertPick {
  const float* routes;
  uint32_t n_used;
  bool is_wide;
  int64_t rows_per_expert, first_row;
  explicit ExpertPick(const ExpertTask& t)
      : routes(t.routes), n_used(static_cast<uint32_t>(t.n_used)), is_wide(t.is_wide),
        rows_per_expert(t.rows_per_expert), first_row(t.first_row) {}

  // As ops/linear/route.h has it.
  __device__ int32_t expert_of(uint32_t pair) const {
    return routes == nullptr ? static_cast<int32_t>(pair % n_used) : static_cast<int32_t>(*place(pair));
  }
  // The same ahead of a kernel's wait (ExpertTask::routes_are_settled): past the first-level cache, which may hold what
  // lay there before.
  __device__ int32_t settled_expert_of(uint32_t pair) const {
    return routes == nullptr ? static_cast<int32_t>(pair % n_used) : static_cast<int32_t>(__ldcg(place(pair)));
  }
  __device__ int64_t row_begin(int64_t expert) const { return expert * rows_per_expert + first_row; }
  __device__ uint32_t row_of_x(uint32_t pair) const { return is_wide ? pair : pair / n_used; }

 private:
  __device__ const float* place(uint32_t pair) const {
    const uint32_t token = pair / n_used, rank = pair - token * n_used;
    return routes + (uint64_t{token} * (2 * n_used) + n_used + rank);
  }
};

}  // namespace assay::backend::cuda
