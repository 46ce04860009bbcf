/* Continues several texts at once: every step runs one token of each in one pass over the weights. Each text gets the
 * tokens that it gets alone.   usage: batch MODEL.gguf TEXT... */
#include <assay/assay.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 16 };

static int failed(assay_error* error) {
  fprintf(stderr, "%s: %s\n", assay_status_name(assay_error_code(error)), assay_error_message(error));
  assay_error_free(error);
  return 1;
}

static int32_t best_of(const float* logits, size_t n_logits) {
  size_t best = 0, i = 0;
  for (i = 1; i < n_logits; ++i) best = logits[i] > logits[best] ? i : best;
  return (int32_t)best;
}

int main(int argc, char** argv) {
  const int n_texts = argc - 2;
  assay_error* error = NULL;
  assay_model* model = NULL;
  assay_tokenizer* tokenizer = NULL;
  assay_context* context = NULL;
  assay_context_options options;
  assay_batch_token* batch = NULL;
  int32_t(*answers)[N_TOKENS] = NULL;
  const float* logits = NULL;
  size_t n_logits = 0;
  int i = 0, step = 0;
  if (n_texts < 1) return 2;
  assay_context_options_init(&options, sizeof options);
  options.n_ctx = 256;
  options.n_sequences = n_texts;
  options.n_outputs_max = n_texts;
  batch = calloc((size_t)n_texts, sizeof *batch);
  answers = calloc((size_t)n_texts, sizeof *answers);
  if (batch == NULL || answers == NULL) return 1;
  if (assay_model_load(argv[1], &model, &error) || assay_model_tokenizer(model, &tokenizer, &error) ||
      assay_context_new(model, &options, &context, &error)) {
    return failed(error);
  }
  for (i = 0; i < n_texts; ++i) {
    const char* text = argv[i + 2];
    int32_t* ids = NULL;
    size_t n_ids = 0;
    if (assay_tokenize(tokenizer, text, strlen(text), 0, &ids, &n_ids, &error) ||
        assay_context_decode(context, ids, n_ids, i, NULL, &error) ||
        assay_context_logits(context, &logits, &n_logits, &error)) {
      return failed(error);
    }
    answers[i][0] = best_of(logits, n_logits);
    assay_free(ids);
  }
  for (step = 1; step < N_TOKENS; ++step) {
    for (i = 0; i < n_texts; ++i) {
      batch[i].token = answers[i][step - 1];
      batch[i].sequence = i;
      batch[i].wants_logits = 1;
    }
    if (assay_context_decode_batch(context, batch, (size_t)n_texts, &error)) return failed(error);
    for (i = 0; i < n_texts; ++i) {
      if (assay_context_batch_logits(context, i, &logits, &n_logits, &error)) return failed(error);
      answers[i][step] = best_of(logits, n_logits);
    }
  }
  for (i = 0; i < n_texts; ++i) {
    char* text = NULL;
    size_t n_bytes = 0;
    if (assay_detokenize(tokenizer, answers[i], N_TOKENS, 0, &text, &n_bytes, &error)) return failed(error);
    fwrite(text, 1, n_bytes, stdout);
    putchar('\n');
    assay_free(text);
  }
  free(answers);
  free(batch);
  assay_context_free(context);
  assay_tokenizer_free(tokenizer);
  assay_model_free(model);
  return 0;
}
