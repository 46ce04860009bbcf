// The activation functions of feed-forward layers, gates and decays. One table: a function without its reference, its
// float64 formula or (verify/) its bound does not compile. Formulas: num/math.h, num/activations.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "num/activations.h"
#include "num/device.h"

namespace assay::ops {

enum class ActivationFunction : uint8_t {
  silu,
  gelu_tanh,
  gelu_erf,
  relu_squared,
  sigmoid,
  softplus,
  exponential,
  identity,
  n_functions
};  // n_functions counts them
inline constexpr auto kNActivationFunctions = static_cast<size_t>(ActivationFunction::n_functions);

// On host and device; the scalar reference. The compiler asks for a case of each.
ASSAY_FN float activate(ActivationFunction function, float x) noexcept {
  switch (function) {
    case ActivationFunction::silu: return num::silu(x);
    case ActivationFunction::gelu_tanh: return num::gelu_tanh(x);
    case ActivationFunction::gelu_erf: return num::gelu_erf(x);
    case ActivationFunction::relu_squared: return num::relu_squared(x);
    case ActivationFunction::sigmoid: return num::sigmoid(x);
    case ActivationFunction::softplus: return num::softplus(x);
    case ActivationFunction::exponential: return num::exp(x);
    case ActivationFunction::identity: return x;
    case ActivationFunction::n_functions: break;
  }
  return x - x;  // no function
}

// What else is known of each on the host.
struct ActivationTraits {
  ActivationFunction function;
  std::string_view name;  // as reports call it
  double (*f64)(double) noexcept;
};
const ActivationTraits& traits_of(ActivationFunction function) noexcept;

// Its formulas in float64.
double silu64(double x) noexcept;
double gelu_tanh64(double x) noexcept;
double gelu_erf64(double x) noexcept;
double relu_squared64(double x) noexcept;
double sigmoid64(double x) noexcept;
double softplus64(double x) noexcept;
double exponential64(double x) noexcept;
double identity64(double x) noexcept;

}  // namespace assay::ops
