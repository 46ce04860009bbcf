// The shared memory of a block of threads of the tiles for every card (tiles/mma_tile.cuh): sums that wait in the tree,
// scales and sums of a stage, and as many stages of packed weights and columns as there is room for.
#pragma once

#include "tensor/dtype.h"

namespace assay::backend::cuda {

inline constexpr int kTileRows = 128, kTileColumns = 128;
inline constexpr int kStageWeights = 128;  // of a row in a stage
inline constexpr int kColumnsBytes = kTileColumns * kStageWeights;

struct TileLayout {
  int stage_bytes, scalar_bytes, waiting_bytes, stages_max;

  constexpr int stages() const {
    const int room = 227 * 1024 - waiting_bytes - scalar_bytes;
    int n = stages_max;
    while (n > 2 && room < n * stage_bytes) --n;
    return n;
  }
  constexpr int bytes() const { return waiting_bytes + scalar_bytes + stages() * stage_bytes; }
};
constexpr int tile_waiting_bytes(int planes) { return 2 * kTileRows * kTileColumns / planes * 4; }

// pitch: bytes of a row of weights in a stage.
constexpr int tile_scalar_floats_32(int planes, bool has_min) {  // of a stage
  return kStageWeights / 32 * ((has_min ? 2 : 1) * kTileRows + kTileColumns / planes + (has_min ? kTileColumns : 0));
}
constexpr TileLayout tile_layout_32(int pitch, int planes, bool has_min) {
  return {kColumnsBytes + kTileRows * pitch, 2 * tile_scalar_floats_32(planes, has_min) * 4, tile_waiting_bytes(planes),
          3};
}
inline constexpr int kTileSumsPitch = 48;  // bytes of a column's 16 sums: neighbours in different banks
constexpr TileLayout tile_layout_256(int pitch, int planes, bool has_min) {
  return {kColumnsBytes + kTileRows * pitch,
          (has_min ? kTileColumns * kTileSumsPitch : 0) + (2 * kTileRows + kTileColumns) * 4,
          tile_waiting_bytes(planes), 4};
}

// Bytes of a row of weights in a stage, an odd number of 16: rows then lie in different banks. 0: not of these tiles.
constexpr int tile_pitch(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::Q4_0:
    case tensor::DType::Q4_1: return 5 * 16;
    case tensor::DType::Q8_0: return 9 * 16;
    case tensor::DType::Q4_K: return 5 * 16;
    case tensor::DType::Q5_K:
    case tensor::DType::Q6_K: return 7 * 16;
    default: return 0;
  }
}

}  // namespace assay::backend::cuda
