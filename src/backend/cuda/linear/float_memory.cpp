// See float_memory.h.
#include "backend/cuda/linear/float_memory.h"

#include <algorithm>

#include "backend/cuda/runtime/hopper.h"

namespace assay::backend::cuda {

FloatMemory::FloatMemory(std::span<const FloatNeed> needs, int64_t n_tokens_max) {
  const int n_processors = hopper_processors();
  int64_t n_w = 0, n_x = 0;
  for (const FloatNeed& need : needs) {
    if (!are_tile_columns(need.cols)) continue;
    const int64_t tile = kFloatTileRows * need.cols;
    if (need.rows > 0)
      n_w = std::max(n_w, std::max(tile, std::min(need.rows * need.cols, kFloatsPackedMax) / tile * tile));
    n_x = std::max(n_x, float_rows_packed(n_tokens_max, need.cols));
  }
  if (n_x == 0 || n_processors == 0 || n_tokens_max <= kFloatSkinnyTokensMax) return;
  const auto floats = [](int64_t n, const char* what) {
    return DeviceBuffer(static_cast<size_t>(n) * sizeof(float), what);
  };
  w_ = floats(n_w, "packed weights");
  x_ = floats(n_x, "packed activations");
  sums_ = floats(n_w > 0 ? n_processors * kFloatSums : 0, "sums of prefill");
  view_ = {w_.as<float>(), n_w, x_.as<float>(), sums_.as<float>()};
}

}  // namespace assay::backend::cuda
