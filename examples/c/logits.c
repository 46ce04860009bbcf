/* The likeliest next token after a text, and the digest of all logits that `assay logits` prints for it.   usage:
 * logits MODEL.gguf TEXT */
#include <assay/assay.h>
#include <stdio.h>
#include <string.h>

static int failed(assay_error* error) {
  fprintf(stderr, "%s: %s\n", assay_status_name(assay_error_code(error)), assay_error_message(error));
  assay_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  assay_error* error = NULL;
  assay_model* model = NULL;
  assay_tokenizer* tokenizer = NULL;
  assay_context* context = NULL;
  int32_t* ids = NULL;
  const float* logits = NULL;
  size_t n_ids = 0, n_logits = 0, best = 0, i = 0;
  char digest[ASSAY_DIGEST_BYTES];
  if (argc != 3) return 2;
  if (assay_model_load(argv[1], &model, &error) || assay_model_tokenizer(model, &tokenizer, &error) ||
      assay_tokenize(tokenizer, argv[2], strlen(argv[2]), 1, &ids, &n_ids, &error) ||
      assay_context_new(model, NULL, &context, &error) ||
      assay_context_decode_all(context, ids, n_ids, 0, NULL, NULL, NULL, &error) ||
      assay_context_logits(context, &logits, &n_logits, &error) ||
      assay_context_logits_digest(context, digest, &error)) {
    return failed(error);
  }
  for (i = 1; i < n_logits; ++i) best = logits[i] > logits[best] ? i : best;
  printf("%zu %s\n", best, digest);
  assay_context_free(context);
  assay_free(ids);
  assay_tokenizer_free(tokenizer);
  assay_model_free(model);
  return 0;
}
