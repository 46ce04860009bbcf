// A tiny llama with a vocabulary of bytes: a whole model, which every command can load.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "support/tiny_llama.h"

namespace assay::test {

inline void write_tiny_model(const std::filesystem::path& path) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> kinds = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
    tokens.push_back(text);
    kinds.push_back(6);
  }
  tokens.push_back("a");
  kinds.push_back(1);
  TinyLlama spec;
  spec.n_layers = 1;
  spec.vocab_size = static_cast<uint32_t>(tokens.size());
  TinyLlamaWriter writer(spec);
  writer.file()
      .set("tokenizer.ggml.model", "llama")
      .set("tokenizer.ggml.tokens", tokens)
      .set("tokenizer.ggml.token_type", kinds);
  writer.file().set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f)).write(path);
}

}  // namespace assay::test
