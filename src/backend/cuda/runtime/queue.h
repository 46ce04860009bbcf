// Where kernels are queued, and how they follow one another.
#pragma once

#include <cuda_runtime_api.h>

namespace assay::backend::cuda {

// overlap: a kernel may start before the one ahead of it has ended, and waits for it where it first reads what that one
// wrote (programmatic dependent launch); for devices and code of compute capability 9.0 or newer.
struct Queue {
  Queue(cudaStream_t s = nullptr, bool may_overlap = false, int multiprocessors = 132)  // NOLINT: a stream is a queue
      : stream(s), overlap(may_overlap), n_multiprocessors(multiprocessors) {}
  cudaStream_t stream;
  bool overlap;
  int n_multiprocessors;  // of the device: how many blocks of threads make it full; no bit depends on it
};

// The compute capability, times ten, that the kernels running on the current device were compiled for.
int code_on_device();

}  // namespace assay::backend::cuda
