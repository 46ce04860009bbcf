// Rows of floats as integers (A32 and A256 of quant/activations.h), for products: row by row, each at a multiple of 4 words.
//
//   | q, 4 a word | l, the same, with two planes | d of each block | sums of q by groups of 16 | sums of l, with two planes |
#ifndef ASSAY_TWIN_GLSL
#define ASSAY_TWIN_GLSL

// In words: where the parts of a row of k elements begin, and how long it is.
uint twin_l(uint k) { return k / 4u; }
uint twin_d(uint k, uint planes) { return planes * (k / 4u); }
uint twin_sums(uint k, uint planes, uint block) { return twin_d(k, planes) + k / block; }
uint twin_words(uint k, uint planes, uint block) { return (twin_sums(k, planes, block) + planes * (k / 16u) + 3u) & ~3u; }

#endif
