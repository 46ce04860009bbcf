// The architectures that this build serves: one file each in this folder, one line each in list.cpp.
#pragma once

#include <span>
#include <string_view>

#include "model/hparams.h"
#include "model/plan_builder.h"

namespace assay::model {

// vocab_size: rows of the embedding table.
struct ArchInput {
  const KeyReader& keys;
  const Hparams& hparams;
  int64_t vocab_size;
};

struct Architecture {
  std::string_view name;                                             // general.architecture
  ops::ValueId (*build)(const ArchInput& input, PlanBuilder& plan);  // returns the logits; kNone: there is no head
  bool rotates = true;  // else rope.dimension_count says nothing, and may be wider than a head
};

std::span<const Architecture> architectures() noexcept;

namespace arch {
using Build = ops::ValueId(const ArchInput& input, PlanBuilder& plan);
Build llama, gemma3, qwen2, qwen3, gemma, ernie4_5, seed_oss, hunyuan_dense, arcee, smollm3, nemotron, jais2,
    starcoder2, apertus, gemma2, glm4, olmo2, exaone4, granite, granite_swa, command_r, cohere2, stablelm, gptneox,
    gpt2, falcon, phi2, olmo, mistral3, phi3, qwen2moe, qwen3moe, olmoe, minimax_m2, glm4moe, hunyuan_moe, hy_v3, dots1,
    ernie4_5_moe, exaone_moe, mellum, phimoe, granitemoe, cohere2moe, afmoe, laguna, mimo2, llama4, gpt_oss, gemma4,
    deepseek2, deepseek32, glm_dsa, mistral4, minicpm3, qwen35, qwen35moe, qwen3next, lfm2, lfm2moe, granitehybrid,
    nemotron_h, nemotron_h_moe, falcon_h1, mamba, mamba2, jamba, kimi_linear, bailingmoe3, bitnet, gemma3n, minimax_m3,
    qwen4exp, bert, nomic_bert, nomic_bert_moe, modern_bert, eurobert, gemma_embedding;
}  // namespace arch

}  // namespace assay::model
