// Decode with weights in blocks of 32.
#include "backend/cuda/decode_linear.cuh"

namespace assay::backend::cuda {

void decode_linears_32(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, int planes, const Queue& queue) {
  planes == 2 ? launch_decode<DecodeFormats32, RowA32<2>>(source, linears, gate, queue)
              : launch_decode<DecodeFormats32, RowA32<1>>(source, linears, gate, queue);
}

}  // namespace assay::backend::cuda
