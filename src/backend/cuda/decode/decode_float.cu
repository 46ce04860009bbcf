// Decode with float weights, and the door of decode's products.
#include "backend/cuda/decode/decode_linear.cuh"

namespace assay::backend::cuda {

// Whole rows, as many as there is room for.
constexpr DecodeLayouts kLayouts = {.few = {.shared_bytes = 220 * 1024, .slots_min = 3, .depth_max = 4}};

void decode_linears_float(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                          const Queue& queue) {
  launch_decode<DecodeFormatsFloat, RowF32>(source, linears, gate, kLayouts, queue);
}

void decode_linears(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                    quant::Activation kind, int planes, const Queue& queue) {
  if (kind == quant::Activation::a256) return decode_linears_256(source, linears, gate, planes, queue);
  if (kind == quant::Activation::a32) return decode_linears_32(source, linears, gate, planes, queue);
  decode_linears_float(source, linears, gate, queue);
}

}  // namespace assay::backend::cuda
