// Decode of one token in mode `fast`: decode_linears of decode.h in the order of fast_linear.h, and attention in that
// of fast_attention.h.
#pragma once

#include <span>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/decode/decode.h"
#include "backend/cuda/rows/fused.h"
#include "backend/cuda/tiles/fast_linear.h"

namespace assay::backend::cuda {

// All matrices of one type, F16 or BF16. stages: of a ring, DecodeHalvesPlaces::kStages or kStagesShort
// (kernels/decode_table.h).
void fast_decode_linears(const DecodeSource& source, std::span<const LinearTask> linears, const DecodeGate& gate,
                         int stages, const Queue& queue);

// Heads and attention of one token; where n_segments is above 1 into attention.partials, to be merged.
void fast_decode_attention(const AttentionTask& attention, const HeadsTask& heads, const Queue& queue);

}  // namespace assay::backend::cuda
