// DeepSeek V2, V3, R1, Kimi K2, GLM-4.7-Flash: attention over latents, dense layers first, then experts beside shared
// ones. V2 (softmax) scores a group of experts by its best, V3 (sigmoid, with a bias for the choice) by its two best.
// Source: DeepSeek-V2, arXiv:2405.04434; DeepSeek-V3, arXiv:2412.19437; Hugging Face transformers, modeling_deepseek_v2
// and _v3.
#include "model/arch/latent.h"

namespace assay::model::arch {

ops::ValueId deepseek2(const ArchInput& input, PlanBuilder& p) {
  return latent_mixture(input, p, {.softmax_groups_by_best = true});
}

}  // namespace assay::model::arch
