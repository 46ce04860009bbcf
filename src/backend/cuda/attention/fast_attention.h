// Attention of mode `fast` (docs/numerics.md, section 7): both products on the float tensor cores. A query's bits
// depend on its row, its position and its keys, not on who runs beside it or how the context is cut, so few and many
// tokens give the same.
#pragma once

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/runtime/queue.h"

namespace assay::backend::cuda {

// As attention_tiles and attention_split.
void fast_attention_tiles(const AttentionTask& task, const Queue& queue);
void fast_attention_split(const AttentionTask& task, const Queue& queue);

}  // namespace assay::backend::cuda
