// DeepSeek V3.2: deepseek2's layers as V3 has them, which attend to the keys that an indexer chooses. Index queries and
// keys turn by halves.
// Source: DeepSeek-V3.2, arXiv:2512.02556; Hugging Face transformers, modeling_deepseek_v32.
#include "model/arch/latent.h"

namespace assay::model::arch {

ops::ValueId deepseek32(const ArchInput& input, PlanBuilder& p) {
  return latent_mixture(input, p, {.gating = ops::Gating::sigmoid, .indexer = Pairing::halves});
}

}  // namespace assay::model::arch
