// Decode with weights in superblocks of 256.
#include "backend/cuda/decode_linear.cuh"

namespace assay::backend::cuda {

void decode_linears_256(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue) {
  planes == 2 ? launch_decode<DecodeFormats256, RowA256<2>>(source, linears, gate, queue)
              : launch_decode<DecodeFormats256, RowA256<1>>(source, linears, gate, queue);
}

}  // namespace assay::backend::cuda
