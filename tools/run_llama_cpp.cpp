// Whether llama.cpp loads files and runs them: of each one line, with the eight tokens that it thinks most likely after
// "The capital of France is".
// Exit code 1 where a file does not load or its logits are no numbers.   usage: run_llama_cpp MODEL.gguf...
//   g++ -std=c++17 -O1 tools/run_llama_cpp.cpp -ILLAMA_CPP/include -ILLAMA_CPP/ggml/include -LBUILD/bin -lllama -lggml
//     -lggml-base -Wl,-rpath,BUILD/bin
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "llama.h"

namespace {

// Empty: it does not run.
std::string continuation(llama_model* model, llama_context* context) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const std::string text = "The capital of France is";
  std::vector<llama_token> tokens(64);
  const int n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                               static_cast<int32_t>(tokens.size()), true, false);
  if (n <= 0) return {};
  tokens.resize(static_cast<size_t>(n));
  std::string out;
  for (int i = 0; i < 8; ++i) {
    if (llama_decode(context, llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))) != 0) return {};
    const float* logits = llama_get_logits_ith(context, -1);
    const int n_vocab = llama_vocab_n_tokens(vocab);
    if (!std::all_of(logits, logits + n_vocab, [](float x) { return std::isfinite(x); })) return {};
    tokens = {static_cast<llama_token>(std::max_element(logits, logits + n_vocab) - logits)};
    char piece[256];
    const int length = llama_token_to_piece(vocab, tokens[0], piece, sizeof piece, 0, true);
    if (length > 0) out.append(piece, static_cast<size_t>(length));
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: run_llama_cpp MODEL.gguf...\n"), 2;
  llama_backend_init();
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  int n_bad = 0;
  for (int i = 1; i < argc; ++i) {
    llama_model* model = llama_model_load_from_file(argv[i], llama_model_default_params());
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 128;
    params.n_threads = params.n_threads_batch = 2;
    llama_context* context = model == nullptr ? nullptr : llama_init_from_model(model, params);
    const std::string out = context == nullptr ? "" : continuation(model, context);
    n_bad += out.empty();
    std::printf("%s  %s  %s\n", out.empty() ? "FAIL" : "ok  ", argv[i], out.c_str());
    std::fflush(stdout);
    if (context != nullptr) llama_free(context);
    if (model != nullptr) llama_model_free(model);
  }
  return n_bad != 0;
}
