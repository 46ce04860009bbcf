// Where an element lies in the cache, and how 32 of them are put there by one warp.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/attention/cache_pages.cuh"
#include "backend/cuda/runtime/warp.cuh"
#include "num/f16.h"
#include "quant/steps.h"

namespace assay::backend::cuda {

// Element j of a key or a value, and its block's scale (q8_0).
struct Place {
  std::byte* element;
  std::byte* scale;
};

__device__ inline int64_t element_bytes(ops::CacheType type) {
  return type == ops::CacheType::f32 ? 4 : type == ops::CacheType::f16 ? 2 : 1;
}

// page: of the position.
__device__ inline Place key_place(const CacheView& c, std::byte* page, int64_t head, int64_t position, int64_t j) {
  std::byte* tile = page + c.k + head * c.k_head_bytes + position / kKeyTile % kPageTiles * c.k_tile_bytes;
  const int64_t lane = position % kKeyTile, at = j * element_bytes(c.type_k);
  std::byte* scales = tile + c.n_pieces * kKeyTile * kPieceBytes;
  return {tile + (at / kPieceBytes * kKeyTile + lane) * kPieceBytes + at % kPieceBytes,
          scales + (j / 32 * kKeyTile + lane) * 2};
}
__device__ inline Place value_place(const CacheView& c, std::byte* page, int64_t head, int64_t position, int64_t j) {
  std::byte* row = page + c.v + head * c.v_head_bytes + position % kCachePage * c.v_row_bytes;
  return {row + j * element_bytes(c.type_v), row + c.v_dim + j / 32 * 2};
}

// num::float_to_half: the instruction gives all its bits but those of a NaN.
__device__ inline uint16_t rounded_half(float x) {
  const uint32_t bits = __float_as_uint(x);
  return x == x ? __half_as_ushort(__float2half_rn(x))
                : static_cast<uint16_t>(((bits >> 16) & 0x8000u) | 0x7E00u | ((bits >> 13) & 0x1FFu));
}

// The whole warp calls it; inside: whether the lane has an element. With q8_0 all have.
__device__ inline void put(ops::CacheType type, float x, bool inside, const Place& place) {
  if (type == ops::CacheType::q8_0) {
    const quant::BlockScale scale = quant::block_scale(warp_max(__float_as_uint(x) & 0x7FFFFFFFu));
    const float q = scale.r == 0.0f ? 0.0f : quant::first_plane(x, scale.r);
    *reinterpret_cast<int8_t*>(place.element) = static_cast<int8_t>(q);
    if (threadIdx.x % 32 == 0) *reinterpret_cast<uint16_t*>(place.scale) = rounded_half(scale.d);
  } else if (!inside) {
    return;
  } else if (type == ops::CacheType::f16) {
    *reinterpret_cast<uint16_t*>(place.element) = rounded_half(x);
  } else {
    *reinterpret_cast<float*>(place.element) = x;
  }
}

}  // namespace assay::backend::cuda
