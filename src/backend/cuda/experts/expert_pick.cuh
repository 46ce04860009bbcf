// Which rows a pair of token and rank multiplies (expert_linear.h), on the device.
#pragma once

#include "backend/cuda/experts/expert_linear.h"

namespace assay::backend::cuda {

struct ExpertPick {
  const float* routes;
  int32_t n_used;
  bool is_wide;
  int64_t rows_per_expert, first_row;
  explicit ExpertPick(const ExpertTask& t)
      : routes(t.routes), n_used(t.n_used), is_wide(t.is_wide), rows_per_expert(t.rows_per_expert),
        first_row(t.first_row) {}

  __device__ int64_t expert(int64_t pair) const {
    const int64_t rank = pair % n_used;
    return routes == nullptr ? rank : static_cast<int64_t>(routes[place(pair)]);
  }
  // The same, without divisions of 64 bits.
  __device__ int32_t expert_of(uint32_t pair) const {
    const auto n = static_cast<uint32_t>(n_used);
    const uint32_t token = pair / n, rank = pair - token * n;
    return routes == nullptr ? static_cast<int32_t>(rank)
                             : static_cast<int32_t>(routes[uint64_t{token} * (2 * n) + n + rank]);
  }
  // The same ahead of a kernel's wait (ExpertTask::routes_are_settled): past the first-level cache, which may hold what
  // lay there before.
  __device__ int64_t settled_expert(int64_t pair) const {
    return routes == nullptr ? pair % n_used : static_cast<int64_t>(__ldcg(routes + place(pair)));
  }
  __device__ int64_t row_begin(int64_t expert) const { return expert * rows_per_expert + first_row; }
  __device__ int64_t row_of_x(int64_t pair) const { return is_wide ? pair : pair / n_used; }

 private:
  __device__ int64_t place(int64_t pair) const { return pair / n_used * 2 * n_used + n_used + pair % n_used; }
};

}  // namespace assay::backend::cuda
