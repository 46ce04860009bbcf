// What a layer of the cache keeps (ops/attention/attention.h), position by position as cache_encode_ref writes it.
//
//   sequence 0: | position 0: head 0, head 1, .. | position 1: .. | .. n_ctx | sequence 1: ..
#ifndef ASSAY_CACHE_GLSL
#define ASSAY_CACHE_GLSL

// Types of a cache, as ops::CacheType.
const uint kCacheF32 = 0u, kCacheF16 = 1u, kCacheQ8_0 = 2u;

uint cache_row_bytes(uint type, uint dim) { return type == kCacheF32 ? 4u * dim : type == kCacheF16 ? 2u * dim : dim / 32u * 34u; }

// Whether elements are multiples of 2^-24: never subnormal, nor is what becomes of them with numbers that are not small.
bool is_coarse(uint type) { return type != kCacheF32; }

// Element j of the head that begins at this byte.
float cache_element(Words cache, uint type, uint row, uint j) {
  if (type == kCacheF32) return uintBitsToFloat(cache.at[row / 4u + j]);
  if (type == kCacheF16) return half_to_float(memory_half(cache, row + 2u * j));
  const uint block = row + j / 32u * 34u;
  return mul_normal(half_to_float(memory_half(cache, block)), float(bitfieldExtract(int(memory_byte(cache, block + 2u + j % 32u)), 0, 8)));
}

#endif
