// See activation.h.
#include "ops/rows/activation.h"

#include <cmath>
#include <iterator>
#include <numbers>

#include "num/math64.h"

namespace assay::ops {
namespace {

constexpr ActivationTraits kTraits[] = {
    {ActivationFunction::silu, "SiLU", silu64},
    {ActivationFunction::gelu_tanh, "GELU (tanh)", gelu_tanh64},
    {ActivationFunction::gelu_erf, "GELU (erf)", gelu_erf64},
    {ActivationFunction::relu_squared, "squared ReLU", relu_squared64},
    {ActivationFunction::sigmoid, "a sigmoid", sigmoid64},
    {ActivationFunction::softplus, "softplus", softplus64},
    {ActivationFunction::exponential, "an exponential", exponential64},
    {ActivationFunction::identity, "no activation", identity64},
};

constexpr bool in_order() {
  for (size_t i = 0; i < kNActivationFunctions; ++i) {
    if (kTraits[i].function != static_cast<ActivationFunction>(i)) return false;
  }
  return true;
}
static_assert(std::size(kTraits) == kNActivationFunctions && in_order());

}  // namespace

const ActivationTraits& traits_of(ActivationFunction function) noexcept {
  return kTraits[static_cast<size_t>(function)];
}

double silu64(double x) noexcept { return x / (1 + num::exp64(-x)); }

// 0.5 x (1 + tanh(u)) without the cancellation of 1 + tanh(u) below zero.
double gelu_tanh64(double x) noexcept {
  return x / (1 + num::exp64(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

// erfc of the C library is right to an ulp or so on every one in use; the oracle asks for 1e-12 at most.
double gelu_erf64(double x) noexcept { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

double relu_squared64(double x) noexcept { return x > 0 ? x * x : 0.0 * x; }

double sigmoid64(double x) noexcept { return 1 / (1 + num::exp64(-x)); }

double softplus64(double x) noexcept { return (x > 0 ? x : 0.0) + std::log1p(num::exp64(x > 0 ? -x : x)); }

double exponential64(double x) noexcept { return num::exp64(x); }

double identity64(double x) noexcept { return x; }

}  // namespace assay::ops
