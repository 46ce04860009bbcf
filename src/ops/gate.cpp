// Reference of gate.h.
#include "ops/gate.h"

#include "num/math.h"

namespace assay::ops {

void gate_silu_ref(const float* gate, const float* up, int64_t n, float* y) noexcept {
  for (int64_t j = 0; j < n; ++j) y[j] = num::silu(gate[j]) * up[j];
}

void gate_gelu_tanh_ref(const float* gate, const float* up, int64_t n, float* y) noexcept {
  for (int64_t j = 0; j < n; ++j) y[j] = num::gelu_tanh(gate[j]) * up[j];
}

}  // namespace assay::ops
