// See decode_table.h.
#include "backend/cuda/kernels/decode_table.h"

#include <algorithm>
#include <climits>

#include "backend/cuda/kernels/float_table.h"

namespace assay::backend::cuda {
namespace {

using quant::Activation;
using tensor::DType;

bool is_256(DType dtype) noexcept { return dtype == DType::Q4_K || dtype == DType::Q5_K || dtype == DType::Q6_K; }
bool is_32(DType dtype) noexcept { return dtype == DType::Q4_0 || dtype == DType::Q4_1 || dtype == DType::Q8_0; }
bool is_float(DType dtype) noexcept { return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16; }

bool is_router(const DecodeMatrix& w, const Card& card) noexcept {
  return w.is_routed && !w.is_fast && w.dtype == DType::F32 && w.kind == Activation::f32 && w.cols % 32 == 0 &&
         w.rows <= kRouterRowsMax && w.cols <= kRouterColumnsMax && card.has_clusters_of_16();
}
bool are_superblocks(const DecodeMatrix& w, const Card&) noexcept {
  return !w.is_fast && w.kind == Activation::a256 && is_256(w.dtype);
}
bool are_blocks(const DecodeMatrix& w, const Card&) noexcept {
  return !w.is_fast && w.kind == Activation::a32 && is_32(w.dtype);
}
bool are_floats(const DecodeMatrix& w, const Card&) noexcept {
  return !w.is_fast && w.kind == Activation::f32 && is_float(w.dtype) && w.cols % 32 == 0;
}
bool are_halves_in(int stages, const DecodeMatrix& w, const Card& card) noexcept {
  return w.is_fast && are_fast_halves(w.dtype, w.cols) &&
         DecodeHalvesPlaces(w.cols, w.has_norm).bytes(stages) <= card.shared_bytes_max;
}
bool are_halves(const DecodeMatrix& w, const Card& card) noexcept {
  return are_halves_in(DecodeHalvesPlaces::kStages, w, card);
}
bool are_halves_of_short_rings(const DecodeMatrix& w, const Card& card) noexcept {
  return are_halves_in(DecodeHalvesPlaces::kStagesShort, w, card);
}

constexpr DecodeRow kDecodeRows[] = {
    {"router", DecodeKernel::router, &is_router},
    {"decode superblocks", DecodeKernel::superblocks, &are_superblocks},
    {"decode blocks", DecodeKernel::blocks, &are_blocks},
    {"decode floats", DecodeKernel::floats, &are_floats},
    {"decode halves", DecodeKernel::halves, &are_halves},
    {"decode halves, short rings", DecodeKernel::halves_of_short_rings, &are_halves_of_short_rings},
};

}  // namespace

std::span<const DecodeRow> decode_table() noexcept { return kDecodeRows; }

bool takes(const DecodeRow& row, const DecodeMatrix& w, const Card& card) noexcept {
  return w.rows <= INT32_MAX / 8 && w.cols <= kDecodeWidthMax && row.takes(w, card);
}

const DecodeRow* find_decode_row(const DecodeMatrix& w, const Card& card) noexcept {
  const auto* found = std::ranges::find_if(kDecodeRows, [&](const DecodeRow& row) { return takes(row, w, card); });
  return found == std::end(kDecodeRows) ? nullptr : found;
}

bool decode_is_narrow(DType dtype, int64_t width) noexcept { return is_256(dtype) && width <= kNarrow; }

}  // namespace assay::backend::cuda
