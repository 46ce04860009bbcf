// Decode with weights in blocks of 32.
#include "backend/cuda/decode/decode_linear.cuh"

namespace assay::backend::cuda {

// The next kernel's block has room beside this one's, and fetches ahead.
constexpr DecodeLayouts kLayouts = {.few = {.shared_bytes = 112 * 1024, .slots_min = 3, .depth_max = 1}};

void decode_linears_32(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                       int planes, const Queue& queue) {
  planes == 2 ? launch_decode<DecodeFormats32, RowA32<2>>(source, linears, gate, kLayouts, queue)
              : launch_decode<DecodeFormats32, RowA32<1>>(source, linears, gate, kLayouts, queue);
}

}  // namespace assay::backend::cuda
