// The names that `assay pull` knows without being told a repository: models that this engine runs.
#include "assay/store.h"

namespace assay {

const std::vector<ShortName>& short_names() {
  static const std::vector<ShortName> names = {
      {"smollm2", "bartowski/SmolLM2-135M-Instruct-GGUF", "SmolLM2 135M Instruct"},
      {"smollm2-360m", "bartowski/SmolLM2-360M-Instruct-GGUF", "SmolLM2 360M Instruct"},
      {"smollm2-1.7b", "bartowski/SmolLM2-1.7B-Instruct-GGUF", "SmolLM2 1.7B Instruct"},
      {"tinyllama", "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF", "TinyLlama 1.1B Chat"},
      {"gemma3", "unsloth/gemma-3-270m-it-GGUF", "Gemma 3 270M"},
      {"gemma3-1b", "ggml-org/gemma-3-1b-it-GGUF", "Gemma 3 1B"},
      {"gemma3-4b", "ggml-org/gemma-3-4b-it-GGUF", "Gemma 3 4B, its text part"},
      {"llama3.2", "bartowski/Llama-3.2-3B-Instruct-GGUF", "Llama 3.2 3B Instruct"},
      {"llama3.2-1b", "bartowski/Llama-3.2-1B-Instruct-GGUF", "Llama 3.2 1B Instruct"},
      {"llama3.1", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Llama 3.1 8B Instruct"},
      {"mistral", "bartowski/Mistral-7B-Instruct-v0.3-GGUF", "Mistral 7B Instruct"},
  };
  return names;
}

}  // namespace assay
