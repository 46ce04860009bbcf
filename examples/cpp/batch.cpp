// Continues several texts at once: every step runs one token of each in one pass over the weights. Each text gets the
// tokens that it gets alone.
//   usage: batch MODEL.gguf TEXT...
#include <assay/context.h>
#include <assay/error.h>
#include <assay/sampler.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  constexpr int kTokens = 16;
  try {
    const auto model = assay::Model::load(argv[1]);
    const int n_texts = argc - 2;
    assay::Context context(model, {.n_ctx = 256, .n_outputs_max = n_texts, .n_sequences = n_texts});
    std::vector<std::vector<assay::TokenId>> answers(static_cast<size_t>(n_texts));
    for (int i = 0; i < n_texts; ++i) {
      context.decode(model->tokenizer()->encode(argv[i + 2]), i);
      answers[static_cast<size_t>(i)].push_back(assay::argmax(context.logits()));
    }
    for (int step = 1; step < kTokens; ++step) {
      std::vector<assay::BatchToken> batch;
      for (int i = 0; i < n_texts; ++i)
        batch.push_back({.token = answers[static_cast<size_t>(i)].back(), .sequence = i});
      context.decode_batch(batch);
      for (int i = 0; i < n_texts; ++i)
        answers[static_cast<size_t>(i)].push_back(assay::argmax(context.batch_logits(i)));
    }
    for (const auto& answer : answers) std::printf("%s\n", model->tokenizer()->decode(answer).c_str());
  } catch (const assay::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
