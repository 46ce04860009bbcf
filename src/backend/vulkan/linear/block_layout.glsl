// Where the parts of blocks of weights lie on the device, in bytes: the shaders' one list of them. C++ as well as GLSL: matrices.cpp includes it and holds
// every number to the blocks of src/quant.
#ifndef ASSAY_BLOCK_LAYOUT_GLSL
#define ASSAY_BLOCK_LAYOUT_GLSL

// Blocks of 32, with the n blocks of a row cut into parts: bytes of a block in each, and of a block in all parts before it.
const uint kBlock4Quants = 16u, kBlock4Scales = 16u;                       // Q4_0, Q4_1
const uint kBlock5High = 16u, kBlock5HighBytes = 4u, kBlock5Scales = 20u;  // Q5_0, Q5_1: behind as many quants
const uint kBlock8Quants = 32u, kBlock8Scales = 32u;                       // Q8_0
const uint kScaleBytes = 2u, kScaleAndMinBytes = 4u;

// Q6_K, likewise cut.
const uint kQ6KLowBytes = 128u;
const uint kQ6KHigh = 128u, kQ6KHighBytes = 64u;
const uint kQ6KScales = 192u, kQ6KScalesBytes = 16u;
const uint kQ6KFactor = 208u;

// Q4_K and Q5_K, as in the file: a block begins with the 16 bytes of d, dmin and the packed scales.
const uint kQ4KBytes = 144u, kQ4KLow = 16u;
const uint kQ5KBytes = 176u, kQ5KHigh = 16u, kQ5KLow = 48u;

#endif
