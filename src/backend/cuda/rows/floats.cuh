// Neighbouring floats of memory, sixteen bytes at a time.
#pragma once

namespace assay::backend::cuda {

__device__ inline void read_4(const float* from, float* x) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
}
__device__ inline void write_4(float* to, const float* x) { *reinterpret_cast<float4*>(to) = {x[0], x[1], x[2], x[3]}; }
__device__ inline void read_8(const float* from, float (&x)[8]) { read_4(from, x), read_4(from + 4, x + 4); }
__device__ inline void write_8(float* to, const float (&x)[8]) { write_4(to, x), write_4(to + 4, x + 4); }

}  // namespace assay::backend::cuda
