// A head of a query, key or value on its way to attention, by one warp: norm, rotation, and its place in the cache.
#pragma once

#include "backend/cuda/attention/kv_place.cuh"
#include "backend/cuda/rows/fused.h"
#include "num/lanes.h"

namespace assay::backend::cuda {

// Two elements of a head turn by an angle (ops/attention/rope.h).
__device__ inline void rotate_pair(float& a, float& b, float cos, float sin) {
  const float x_a = a, x_b = b;
  a = num::fma(x_a, cos, -(x_b * sin));
  b = num::fma(x_a, sin, x_b * cos);
}

// Norm and rotation of a head whose head_dim elements lie in `row`, shared memory of the warp. w: of the norm, null:
// none; normed, rotated: where the head is kept, null: nowhere.
__device__ inline void rotate_head(float* row, int head_dim, const float* w, float eps, const RopeShape& rope,
                                   const float* angles, float* normed, float* rotated) {
  const int lane = threadIdx.x % 32;
  if (w != nullptr) {
    float sum = 0.0f;
    for (int j = lane; j < head_dim; j += 32) sum = num::fma(row[j], row[j], sum);
    sum = __shfl_sync(kWholeWarp, fold_lanes(sum), 0);
    const float r = 1.0f / sqrtf(sum / static_cast<float>(head_dim) + eps);
    for (int j = lane; j < head_dim; j += 32) {
      row[j] = (row[j] * r) * w[j];
      if (normed != nullptr) normed[j] = row[j];
    }
    __syncwarp();
  }
  const int half = static_cast<int>(rope.dim / 2);
  for (int i = lane; i < half; i += 32) {
    const int a = rope.interleaved ? 2 * i : i, b = rope.interleaved ? 2 * i + 1 : i + half;
    const float cos = angles[i], sin = angles[half + i];
    float x_a = row[a], x_b = row[b];
    rotate_pair(x_a, x_b, cos, sin);
    row[a] = x_a, row[b] = x_b;
  }
  __syncwarp();
  if (rotated != nullptr) {
    for (int j = lane; j < head_dim; j += 32) rotated[j] = row[j];
  }
}

}  // namespace assay::backend::cuda
