// Mistral Small 4: as DeepSeek V3, with softmax for scores. Queries grow with the position where the file says so
// (attention.temperature_scale); the public converter writes no such key, which is the same up to the original context.
// Source: Hugging Face transformers, modeling_mistral4.
#include "model/arch/latent.h"

namespace assay::model::arch {

ops::ValueId mistral4(const ArchInput& input, PlanBuilder& p) { return latent_mixture(input, p, {}); }

}  // namespace assay::model::arch
