// How superblocks pack their integer scales of 6 bits, as bytes in order: for the kernels of every instruction set.
// Included by kernel files only; everything here is local to the file that includes it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay::backend::cpu {
namespace {

// The 12 bytes in which Q4_K and Q5_K pack 8 scales and 8 minima of 6 bits.
struct KScaleBytes {
  uint64_t scales, minima;
};
inline KScaleBytes k_scale_bytes(const std::byte* packed) noexcept {
  uint32_t u[3];
  __builtin_memcpy(u, packed, 12);
  const uint64_t low6 = 0x3F3F3F3Fu, low4 = 0x0F0F0F0Fu, top2 = 0x30303030u;
  return {(u[0] & low6) | (((u[2] & low4) | ((u[0] >> 2) & top2)) << 32),
          (u[1] & low6) | ((((u[2] >> 4) & low4) | ((u[1] >> 2) & top2)) << 32)};
}

// The 12 bytes of Q3_K: low nibbles of 16 scales, then their pairs of top bits; around 32.
struct Q3KScaleBytes {
  uint64_t first, second;
};
inline Q3KScaleBytes q3_k_scale_bytes(const std::byte* packed) noexcept {
  uint64_t nibbles;
  uint32_t pairs;
  __builtin_memcpy(&nibbles, packed, 8);
  __builtin_memcpy(&pairs, packed + 8, 4);
  const uint64_t low4 = 0x0F0F0F0F0F0F0F0Fu, top = 0x30303030u, p = pairs;
  return {(nibbles & low4) | ((p << 4) & top) | (((p << 2) & top) << 32),
          ((nibbles >> 4) & low4) | (p & top) | (((p >> 2) & top) << 32)};
}

}  // namespace
}  // namespace assay::backend::cpu
