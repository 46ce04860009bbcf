// See list.h. A test fails when a file of this folder is missing here.
#include "model/arch/list.h"

namespace assay::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", arch::llama},
    {"gemma3", arch::gemma3},
    {"qwen2", arch::qwen2},
    {"qwen3", arch::qwen3},
    {"gemma", arch::gemma},
    {"ernie4_5", arch::ernie4_5},
    {"seed_oss", arch::seed_oss},
    {"hunyuan-dense", arch::hunyuan_dense},
    {"arcee", arch::arcee},
    {"smollm3", arch::smollm3},
    {"nemotron", arch::nemotron},
    {"jais2", arch::jais2},
    {"starcoder2", arch::starcoder2},
    {"apertus", arch::apertus},
    {"gemma2", arch::gemma2},
    {"glm4", arch::glm4},
    {"olmo2", arch::olmo2},
    {"exaone4", arch::exaone4},
    {"granite", arch::granite},
    {"granite_swa", arch::granite_swa},
    {"command-r", arch::command_r},
    {"cohere2", arch::cohere2},
    {"stablelm", arch::stablelm},
    {"gptneox", arch::gptneox},
    {"gpt2", arch::gpt2},
    {"falcon", arch::falcon},
    {"phi2", arch::phi2},
    {"olmo", arch::olmo},
    {"mistral3", arch::mistral3},
    {"phi3", arch::phi3},
    {"qwen2moe", arch::qwen2moe},
    {"qwen3moe", arch::qwen3moe},
    {"olmoe", arch::olmoe},
    {"minimax-m2", arch::minimax_m2},
    {"glm4moe", arch::glm4moe},
    {"hunyuan-moe", arch::hunyuan_moe},
    {"hy_v3", arch::hy_v3},
    {"dots1", arch::dots1},
    {"ernie4_5-moe", arch::ernie4_5_moe},
    {"exaone-moe", arch::exaone_moe},
    {"mellum", arch::mellum},
    {"granitemoe", arch::granitemoe},
    {"cohere2moe", arch::cohere2moe},
    {"afmoe", arch::afmoe},
    {"laguna", arch::laguna},
    {"mimo2", arch::mimo2},
    {"llama4", arch::llama4},
    {"gpt-oss", arch::gpt_oss},
    {"gemma4", arch::gemma4},
    {"deepseek2", arch::deepseek2},
    {"mistral4", arch::mistral4},
    {"minicpm3", arch::minicpm3},
    {"bert", arch::bert},
    {"nomic-bert", arch::nomic_bert},
    {"modern-bert", arch::modern_bert},
    {"eurobert", arch::eurobert},
    {"gemma-embedding", arch::gemma_embedding},
};

}  // namespace

std::span<const Architecture> architectures() noexcept { return kArchitectures; }

}  // namespace assay::model
