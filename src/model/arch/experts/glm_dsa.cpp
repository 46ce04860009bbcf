// GLM-5, 5.1, 5.2: the layers of DeepSeek V3.2. Index queries and keys turn by pairs; layers without an indexer attend
// to what the last one with one has chosen.
// Source: Hugging Face transformers, modeling_glm_moe_dsa.
#include "model/arch/latent.h"

namespace assay::model::arch {

ops::ValueId glm_dsa(const ArchInput& input, PlanBuilder& p) {
  return latent_mixture(input, p, {.gating = ops::Gating::sigmoid, .indexer = Pairing::pairs, .shared_indexers = true});
}

}  // namespace assay::model::arch
