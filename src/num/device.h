// How the small functions are declared that host files and device code share. They have internal linkage, so that a
// file compiled for a wider instruction set keeps its own copy and never lends it to another.
#pragma once

#if defined(__CUDACC__)
#define ASSAY_FN static inline __host__ __device__
#else
#define ASSAY_FN static inline
#endif

// How the constant tables are declared that such functions index: the device's compiler needs them in the device's
// memory.
#if defined(__CUDA_ARCH__)
#define ASSAY_TABLE static __device__ const
#else
#define ASSAY_TABLE static constexpr
#endif
