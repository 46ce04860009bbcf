// The ops that fast kernels know; others run those of any shape.
#pragma once

#include "ops/attention/attention.h"
#include "ops/plan/plan.h"
#include "ops/rows/activation.h"
#include "ops/rows/gate.h"

namespace assay::backend::cuda {

// Attention and its cache; others run attention_any (attention.h).
bool is_usual(const ops::Plan& plan, const ops::Attention& attention) noexcept;
constexpr bool is_usual(ops::ActivationFunction function) noexcept {
  return function == ops::ActivationFunction::silu || function == ops::ActivationFunction::gelu_tanh;
}
// A gate that may be fused with what is around it: SiLU or GELU by tanh, element by element.
bool is_usual(const ops::Plan& plan, const ops::Gate& gate) noexcept;

}  // namespace assay::backend::cuda
