// A tiny model that talks: random weights, a vocabulary of all bytes and a few words, and a chat template where one is
// asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/small_vocabularies.h"
#include "support/tiny_llama.h"

namespace assay::test {

struct TalkingLlama {
  std::string name = "talker";
  std::string chat_template;
  std::vector<std::string> words = {"\u2581the", "\u2581sea"};  // after <unk>, <s>, </s> and the 256 bytes
  std::string pre = "default";
  uint32_t n_ctx_train = 512;
};

inline GgufWriter talking_llama(const TalkingLlama& spec = {}) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> kinds = {2, 3, 3};
  std::vector<float> scores(3, 0.0f);
  for (const std::string& hex : byte_spellings().hex) {
    tokens.push_back(hex);
    kinds.push_back(6);
    scores.push_back(0);
  }
  for (const std::string& word : spec.words) {
    tokens.push_back(word);
    kinds.push_back(1);
    scores.push_back(-static_cast<float>(tokens.size()));
  }
  TinyLlama model;
  model.vocab_size = static_cast<uint32_t>(tokens.size());
  model.n_ctx_train = spec.n_ctx_train;
  TinyLlamaWriter writer(model);
  GgufWriter file = writer.file();
  file.set("general.name", spec.name).set("tokenizer.ggml.model", "llama").set("tokenizer.ggml.pre", spec.pre);
  file.set("tokenizer.ggml.tokens", tokens)
      .set("tokenizer.ggml.scores", scores)
      .set("tokenizer.ggml.token_type", kinds);
  file.set("tokenizer.ggml.bos_token_id", uint32_t{1}).set("tokenizer.ggml.eos_token_id", uint32_t{2});
  file.set("tokenizer.ggml.add_bos_token", true);
  if (!spec.chat_template.empty()) file.set("tokenizer.chat_template", spec.chat_template);
  return file;
}

}  // namespace assay::test
