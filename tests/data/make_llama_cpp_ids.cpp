// Asks llama.cpp for the ids of texts, and writes them as facts for the tests. Not part of the
// build: link with libllama. usage: make_llama_cpp_ids VOCABULARY.gguf TEXTS OUT     TEXTS: records
// of u16 bytes, text (both little-endian). OUT: u16 number of end-of-generation tokens, u32 each;
// then u16 bytes, text, u8 parse_special, u16 number of ids, u32 each.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "llama.h"

namespace {

void put(std::FILE* out, uint32_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; ++i) std::fputc(static_cast<int>((value >> (8 * i)) & 0xFF), out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  llama_backend_init();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  std::FILE* in = std::fopen(argv[2], "rb");
  std::FILE* out = std::fopen(argv[3], "wb");
  if (model == nullptr || in == nullptr || out == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);

  std::vector<uint32_t> ends;
  for (int32_t id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
    if (llama_vocab_is_eog(vocab, id)) ends.push_back(static_cast<uint32_t>(id));
  }
  put(out, static_cast<uint32_t>(ends.size()), 2);
  for (const uint32_t id : ends) put(out, id, 4);

  for (int low; (low = std::fgetc(in)) != EOF;) {
    std::string text(static_cast<size_t>(low | (std::fgetc(in) << 8)), '\0');
    if (std::fread(text.data(), 1, text.size(), in) != text.size()) return 1;
    for (const bool parse_special : {false, true}) {
      std::vector<llama_token> ids(text.size() + 8);
      const int n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), ids.data(),
                                   static_cast<int32_t>(ids.size()), true, parse_special);
      if (n < 0) return 1;
      put(out, static_cast<uint32_t>(text.size()), 2);
      std::fwrite(text.data(), 1, text.size(), out);
      put(out, parse_special, 1);
      put(out, static_cast<uint32_t>(n), 2);
      for (int i = 0; i < n; ++i) put(out, static_cast<uint32_t>(ids[i]), 4);
    }
  }
  std::fclose(out);
  return 0;
}
