// A batch of few tokens on its way to the device: a kernel reads it where the host has put it, so that nothing waits
// for the copy engine.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace assay::backend::cuda {

// The head's words, then four parts of as many words each (tokens, positions, sequences, selected), of which n_tokens
// are in use, then n_tail words.
struct BatchWords {
  int32_t n_head = 0, part = 0, n_tokens = 0, n_tail = 0;
};

// host: page-locked. Kernels that start ahead may read the batch before they wait: the first that follows this one must
// start after its end.
void fetch_batch(const int32_t* host, int32_t* device, const BatchWords& words, cudaStream_t stream);

}  // namespace assay::backend::cuda
