// A llama model of random weights that can be talked to: a vocabulary of bytes and a chat template, as a GGUF file for
// tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/small_vocabularies.h"
#include "support/tiny_llama.h"

namespace assay::test {

inline constexpr const char* kTinyTemplate =
    "{% for m in messages %}{{ '<user>' if m.role == 'user' else m.role }}{{ m.content }}{% endfor %}{% if "
    "add_generation_prompt %}</s>{% endif %}";

inline void write_tiny_chat_model(const std::filesystem::path& path, bool has_template = true) {
  const text::VocabularyFacts facts = sentence_piece_facts();
  TinyLlama spec;
  spec.d_model = 64;
  spec.d_ff = 96;
  spec.head_dim = 16;
  spec.n_ctx_train = 512;
  spec.vocab_size = static_cast<uint32_t>(facts.tokens.size());
  TinyLlamaWriter writer(spec);
  std::vector<std::string> tokens;
  facts.tokens.for_each([&](size_t, std::string_view token) { tokens.emplace_back(token); });
  std::vector<float> scores(facts.scores.begin(), facts.scores.end());
  std::vector<int32_t> kinds;
  for (const TokenKind kind : facts.kinds) {
    constexpr int32_t kGgufKinds[] = {1, 2, 3, 4, 5, 6};  // normal, unknown, control, user_defined, unused, byte
    kinds.push_back(kGgufKinds[static_cast<size_t>(kind)]);
  }
  writer.file()
      .set("tokenizer.ggml.model", "llama")
      .set("tokenizer.ggml.tokens", tokens)
      .set("tokenizer.ggml.scores", scores)
      .set("tokenizer.ggml.token_type", kinds)
      .set("tokenizer.ggml.bos_token_id", uint32_t{1})
      .set("tokenizer.ggml.eos_token_id", uint32_t{2})
      .set("tokenizer.ggml.add_bos_token", true);
  if (has_template) writer.file().set("tokenizer.chat_template", kTinyTemplate);
  writer.file().write(path);
}

}  // namespace assay::test
