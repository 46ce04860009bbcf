// y[j] = activation(gate[j]) * up[j]; f32, y may alias either: the middle of a gated feed-forward layer.
// Bits: the activation as in num/math.h, the product rounded once.
// Source: Shazeer 2020, arXiv:2002.05202.
#pragma once

#include <cstdint>

namespace assay::ops {

void gate_silu_ref(const float* gate, const float* up, int64_t n, float* y) noexcept;
void gate_gelu_tanh_ref(const float* gate, const float* up, int64_t n, float* y) noexcept;

}  // namespace assay::ops
