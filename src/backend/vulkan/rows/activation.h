// Which activation functions the shaders know (rows/activated.glsl), and by which number. An op with another one is
// borrowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ops/rows/activation.h"

namespace assay::backend::vulkan {

namespace shader {
using uint = uint32_t;
#include "backend/vulkan/rows/activation_numbers.glsl"
}  // namespace shader

// The compiler asks for a case of each.
constexpr std::optional<uint32_t> number_in_shaders(ops::ActivationFunction function) noexcept {
  using enum ops::ActivationFunction;
  switch (function) {
    case silu: return shader::kActivationSilu;
    case gelu_tanh: return shader::kActivationGeluTanh;
    case relu_squared: return shader::kActivationReluSquared;
    case sigmoid: return shader::kActivationSigmoid;
    case exponential: return shader::kActivationExponential;
    case identity: return shader::kActivationIdentity;
    case gelu_erf:
    case softplus:
    case n_functions: break;
  }
  return std::nullopt;
}

constexpr bool numbers_differ() noexcept {
  for (size_t i = 0; i < ops::kNActivationFunctions; ++i) {
    const auto number = number_in_shaders(static_cast<ops::ActivationFunction>(i));
    for (size_t j = 0; number && j < i; ++j) {
      if (number == number_in_shaders(static_cast<ops::ActivationFunction>(j))) return false;
    }
  }
  return true;
}
static_assert(numbers_differ());

}  // namespace assay::backend::vulkan
