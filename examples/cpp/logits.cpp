// The likeliest next token after a text, and the digest of all logits that `assay logits` prints for it.   usage:
// logits MODEL.gguf TEXT
#include <assay/error.h>
#include <assay/score.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const auto model = assay::Model::load(argv[1]);
    assay::Context context(model);
    const assay::Score score = assay::score(context, model->tokenizer()->encode(argv[2], {.parse_special = true}), 1);
    std::printf("%d %s\n", score.top.front().first, score.logits_digest.c_str());
  } catch (const assay::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
