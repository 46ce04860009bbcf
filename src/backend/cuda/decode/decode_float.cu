// Decode with float weights, and which matrices decode serves.
#include "backend/cuda/decode/decode_linear.cuh"

namespace assay::backend::cuda {

// Whole rows, as many as there is room for.
constexpr DecodeLayouts kLayouts = {.few = {.shared_bytes = 220 * 1024, .slots_min = 3, .depth_max = 4}};

void decode_linears_float(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, const Queue& queue) {
  launch_decode<DecodeFormatsFloat, RowF32>(source, linears, gate, kLayouts, queue);
}

bool decode_serves(tensor::DType dtype, int64_t rows, int64_t cols, quant::Activation kind) noexcept {
  if (rows > INT32_MAX / 8 || cols > kDecodeWidthMax) return false;
  if (kind == quant::Activation::a256) return decode_knows_256(dtype);
  if (kind == quant::Activation::a32) return DecodeFormats32::find(dtype) >= 0;
  return cols % 32 == 0 && DecodeFormatsFloat::find(dtype) >= 0;
}

void decode_linears(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate, quant::Activation kind, int planes,
                    const Queue& queue) {
  if (kind == quant::Activation::a256) return decode_linears_256(source, linears, gate, planes, queue);
  if (kind == quant::Activation::a32) return decode_linears_32(source, linears, gate, planes, queue);
  decode_linears_float(source, linears, gate, queue);
}

}  // namespace assay::backend::cuda
