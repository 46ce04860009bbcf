// From a row of the table of attention to its kernel (attention.h).
#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/fast_attention.h"

namespace assay::backend::cuda {

void launch_attention(const AttentionRow& row, const AttentionTask& task, const Queue& queue) {
  if (task.n_tiles == 0) return;
  switch (row.kernel) {
    case AttentionKernel::fast_alone: return fast_attention_split(task, queue);
    case AttentionKernel::alone: return attention_alone(task, queue);
    case AttentionKernel::split: return attention_split(task, queue);
    case AttentionKernel::fast_tiles: return fast_attention_tiles(task, queue);
    case AttentionKernel::hopper: return attention_hopper(task, queue);
    case AttentionKernel::prefill: return attention_prefill(task, queue);
    case AttentionKernel::tiles: return attention_tiles(task, queue);
    case AttentionKernel::fast_decode:
    case AttentionKernel::decode_halves_of_four:
    case AttentionKernel::decode_halves:
    case AttentionKernel::decode_of_four:
    case AttentionKernel::decode:  // with their heads, by decode groups (decode_attention.h, fast_decode.h)
    case AttentionKernel::merge_integers:
    case AttentionKernel::merge: return;  // behind tokens that are alone (runtime/run_group.cpp)
  }
}

}  // namespace assay::backend::cuda
