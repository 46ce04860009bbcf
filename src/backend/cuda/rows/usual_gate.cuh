// The activation functions of gates that stand in one kernel with other ops (is_usual of runtime/usual.h lets no other
// through), in one place. Every other function is computed by ops::activate, in the kernels of plain_rows.h.
#pragma once

#include <stdexcept>
#include <type_traits>

#include "num/math.h"
#include "ops/rows/activation.h"

namespace assay::backend::cuda {

__device__ inline float usual_activation(ops::ActivationFunction function, float x) {
  return function == ops::ActivationFunction::silu ? num::silu(x) : num::gelu_tanh(x);
}

// Calls run with the function as a constant, for kernels that are compiled for each.
template <class Run>
void with_usual(ops::ActivationFunction function, const Run& run) {
  using enum ops::ActivationFunction;
  switch (function) {
    case silu: return run(std::integral_constant<ops::ActivationFunction, silu>());
    case gelu_tanh: return run(std::integral_constant<ops::ActivationFunction, gelu_tanh>());
    default: throw std::logic_error("a gate that is_usual does not let through");
  }
}

}  // namespace assay::backend::cuda
