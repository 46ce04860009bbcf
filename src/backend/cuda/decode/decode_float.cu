// Decode with float weights.
#include "backend/cuda/decode/decode_linear.cuh"

namespace assay::backend::cuda {

// Whole rows, as many as there is room for.
constexpr DecodeLayouts kLayouts = {.few = {.shared_bytes = 220 * 1024, .slots_min = 3, .depth_max = 4}};

void decode_linears_float(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                          const Queue& queue) {
  launch_decode<DecodeFormatsFloat, RowF32>(source, linears, gate, kLayouts, queue);
}

}  // namespace assay::backend::cuda
