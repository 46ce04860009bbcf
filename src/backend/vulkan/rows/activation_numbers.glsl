// The numbers that shaders know activations by. Read by both sides: rows/activated.glsl computes them, rows/activation.h says which function each is.
#ifndef ASSAY_ACTIVATION_NUMBERS_GLSL
#define ASSAY_ACTIVATION_NUMBERS_GLSL
const uint kActivationSilu = 0u;
const uint kActivationGeluTanh = 1u;
const uint kActivationReluSquared = 2u;
const uint kActivationSigmoid = 3u;
const uint kActivationExponential = 4u;
const uint kActivationIdentity = 5u;
#endif
