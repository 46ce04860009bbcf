// The activation functions of gates that stand in one kernel with other ops (is_usual of runtime/usual.h lets no other
// through), in one place. Every other function is computed by ops::activate, in the kernels of plain_rows.h.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <type_traits>

#include "backend/cuda/runtime/usual.h"
#include "num/math.h"
#include "ops/rows/activation.h"

namespace assay::backend::cuda {

// Kernels here choose between two without a third branch, so no third may pass.
constexpr bool only_two_are_usual() noexcept {
  using enum ops::ActivationFunction;
  for (size_t i = 0; i < ops::kNActivationFunctions; ++i) {
    const auto function = static_cast<ops::ActivationFunction>(i);
    if (is_usual(function) != (function == silu || function == gelu_tanh)) return false;
  }
  return true;
}
static_assert(only_two_are_usual(), "usual_activation and with_usual need a case of each function that is_usual has");

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
