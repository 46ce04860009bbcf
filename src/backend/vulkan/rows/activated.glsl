// Activations by the shader's specialisation constant kActivation. A number that is none gives NaN.
// Included once for each set of names (num/seen.glsl).
#include "rows/activation_numbers.glsl"

// One exponential and one quotient for all that are made of them.
float activated(float x) {
  const bool is_gelu = kActivation == kActivationGeluTanh, is_sigmoid = kActivation == kActivationSigmoid,
             is_exponential = kActivation == kActivationExponential;
  if (kActivation == kActivationReluSquared) return relu_squared(x);
  if (kActivation == kActivationIdentity) return x;
  if (kActivation != kActivationSilu && !is_gelu && !is_sigmoid && !is_exponential) return uintBitsToFloat(kNaN);
  const float e = exponential(is_gelu ? negated(gelu_twice_u(x)) : is_exponential ? x : negated(x));
  return is_exponential ? e : quotient(is_sigmoid ? 1.0 : x, add(1.0, e));
}
