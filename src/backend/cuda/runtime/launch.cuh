// Launching kernels on a Queue. Every kernel calls wait_for_previous() before it reads or writes what another kernel
// touches, and let_next_start() as soon as its blocks are under way.
#pragma once

#include <string>

#include "assay/error.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

__device__ inline void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}
__device__ inline void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

// Before a launch with more shared memory than a kernel has unasked. False: the device has less shared memory.
template <class Kernel>
bool allow_shared(Kernel kernel, size_t bytes) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) == cudaSuccess)
    return true;
  cudaGetLastError();  // forgotten: it is an answer
  return false;
}

// What a kernel needs that the tables of kernels have for this card (kernels/).
inline void require(bool is_granted, const char* what) {
  if (!is_granted)
    throw Error(Errc::device, std::string("the GPU refused ") + what + " to a kernel that its table has");
}

// Of every kernel in the graph of a decode run: a multiprocessor takes a kernel with another cut between shared memory
// and first-level cache only when it has nothing else to do, so all have the one that the products want.
template <class Kernel>
void take_decode_cut(Kernel kernel) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

// What is computed before this point: compilers move it to where it is used, which is after the wait.
template <class T>
__device__ inline void compute_now(T& x) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    asm volatile("" : "+r"(x));
  }
}
__device__ inline void compute_now(float& x) { asm volatile("" : "+f"(x)); }

// Errors of a launch stay with the runtime; the executor asks for them once a batch.
template <class... Parameters, class... Arguments>
void launch(const Queue& queue, void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
            Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = queue.stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = queue.overlap ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace assay::backend::cuda
