// Activations by the shader's specialisation constant kActivation, as ops/rows/activation.h numbers them: SiLU, GELU (tanh), -, squared ReLU, sigmoid, -, exp, none.
// Included once for each set of names (num/seen.glsl).

// One exponential and one quotient for all that are made of them.
float activated(float x) {
  if (kActivation == 3u) return relu_squared(x);
  if (kActivation == 7u) return x;
  const float e = exponential(kActivation == 1u ? negated(gelu_twice_u(x)) : kActivation == 6u ? x : negated(x));
  return kActivation == 6u ? e : quotient(kActivation == 4u ? 1.0 : x, add(1.0, e));
}
