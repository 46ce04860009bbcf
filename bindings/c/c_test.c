/* The C interface from C99.   usage: c_test MODEL IDS   runs everything once and prints the digest of the logits of the
   comma-separated ids; c_test --layout prints sizes of structs and values of enums. Ends with 1 at the first thing that
   is not as it should be. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assay/assay.h"

#define CHECK(x)                                                      \
  do {                                                                \
    if (!(x)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #x); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static assay_error* error; /* of the last call that failed */

static void ok(assay_status status, int line) {
  if (status == ASSAY_OK) return;
  fprintf(stderr, "c_test.c:%d: %s: %s\n", line, assay_status_name(status), assay_error_message(error));
  exit(1);
}
#define OK(call) ok((call), __LINE__)

/* The call failed with this status, and the message holds that. */
static void refused(assay_status status, assay_status wanted, const char* part, int line) {
  if (status != wanted || error == NULL || assay_error_code(error) != wanted ||
      strstr(assay_error_message(error), part) == NULL) {
    fprintf(stderr, "c_test.c:%d: found %s \"%s\", wanted %s with \"%s\"\n", line, assay_status_name(status),
            assay_error_message(error), assay_status_name(wanted), part);
    exit(1);
  }
  assay_error_free(error);
  error = NULL;
}
#define REFUSED(call, wanted, part) refused((call), (wanted), (part), __LINE__)

static void print_layout(void) {
  printf("size assay_batch_token %zu\n", sizeof(assay_batch_token));
  printf("size assay_chat_options %zu\n", sizeof(assay_chat_options));
  printf("size assay_context_options %zu\n", sizeof(assay_context_options));
  printf("size assay_generate_options %zu\n", sizeof(assay_generate_options));
  printf("size assay_logit_bias %zu\n", sizeof(assay_logit_bias));
  printf("size assay_perplexity_options %zu\n", sizeof(assay_perplexity_options));
  printf("size assay_perplexity_result %zu\n", sizeof(assay_perplexity_result));
  printf("size assay_sampling %zu\n", sizeof(assay_sampling));
  printf("size assay_verify_options %zu\n", sizeof(assay_verify_options));
  printf("offset assay_context_options.n_devices %zu\n", offsetof(assay_context_options, n_devices));
  printf("offset assay_generate_options.user %zu\n", offsetof(assay_generate_options, user));
  printf("offset assay_perplexity_result.same_top %zu\n", offsetof(assay_perplexity_result, same_top));
  printf("offset assay_sampling.n_logit_bias %zu\n", offsetof(assay_sampling, n_logit_bias));
  printf("value ASSAY_INTERNAL %d\n", (int)ASSAY_INTERNAL);
  printf("value ASSAY_FINISH_CANCELLED %d\n", (int)ASSAY_FINISH_CANCELLED);
  printf("value ASSAY_HTML %d\n", (int)ASSAY_HTML);
}

struct heard {
  size_t n_bytes;
  int n_calls, stops_after;
};
static int hear(void* user, const char* text, size_t n_bytes) {
  struct heard* h = (struct heard*)user;
  CHECK(text != NULL && n_bytes > 0);
  h->n_bytes += n_bytes;
  return ++h->n_calls == h->stops_after;
}
static int at_once(void* user) {
  (void)user;
  return 1;
}
static void count_rows(void* user, int64_t position, const double* logits, size_t n_logits) {
  CHECK(position == *(int64_t*)user && logits != NULL && n_logits > 0);
  ++*(int64_t*)user;
}

static void test_errors(const char* path) {
  assay_model* model = NULL;
  char* found = NULL;
  char version[32];
  sprintf(version, "%d.%d.%d", ASSAY_VERSION_MAJOR, ASSAY_VERSION_MINOR, ASSAY_VERSION_PATCH);
  CHECK(strcmp(version, ASSAY_VERSION) == 0 && strcmp(assay_version(), version) == 0);
  CHECK(assay_version_number() == 10000 * ASSAY_VERSION_MAJOR + 100 * ASSAY_VERSION_MINOR + ASSAY_VERSION_PATCH);
  REFUSED(assay_model_load("/nowhere/model.gguf", &model, &error), ASSAY_IO, "/nowhere/model.gguf");
  CHECK(model == NULL && assay_model_load("/nowhere/model.gguf", &model, NULL) == ASSAY_IO);
  REFUSED(assay_model_load(NULL, &model, &error), ASSAY_BAD_REQUEST, "path is NULL");
  REFUSED(assay_model_load(path, NULL, &error), ASSAY_BAD_REQUEST, "model is NULL");
  REFUSED(assay_model_find("no-such-model-anywhere", &found, &error), ASSAY_IO, "no-such-model-anywhere");
  OK(assay_model_find(path, &found, &error));
  CHECK(strcmp(found, path) == 0);
  assay_free(found);
  assay_error_free(NULL);
  assay_model_free(NULL);
  CHECK(strcmp(assay_error_message(NULL), "") == 0 && assay_error_code(NULL) == ASSAY_OK);
}

static void test_tokens(const assay_model* model) {
  assay_tokenizer* tokenizer = NULL;
  int32_t* ids = NULL;
  size_t n_ids = 0, n_bytes = 0;
  char* text = NULL;
  const char* spoken = "the sea, \xc3\xa9";
  OK(assay_model_tokenizer(model, &tokenizer, &error));
  OK(assay_tokenize(tokenizer, spoken, strlen(spoken), 0, &ids, &n_ids, &error));
  CHECK(n_ids > 2 && ids[0] == assay_tokenizer_bos(tokenizer));
  OK(assay_detokenize(tokenizer, ids, n_ids, 0, &text, &n_bytes, &error));
  CHECK(n_bytes == strlen(spoken) && strcmp(text, spoken) == 0);
  assay_free(text);
  assay_free(ids);
  OK(assay_tokenize(tokenizer, NULL, 0, 0, &ids, &n_ids, &error));
  assay_free(ids);
  n_ids = (size_t)assay_tokenizer_vocab_size(tokenizer);
  CHECK(n_ids == (size_t)assay_model_vocab_size(model) &&
        assay_tokenizer_ends_generation(tokenizer, assay_tokenizer_eos(tokenizer)));
  {
    const int32_t wrong = (int32_t)n_ids;
    REFUSED(assay_detokenize(tokenizer, &wrong, 1, 0, &text, &n_bytes, &error), ASSAY_BAD_REQUEST, "");
  }
  assay_tokenizer_free(tokenizer);
}

/* Options: an older caller's shorter struct, a later one's longer one, and one that was never filled. */
static void test_sizes(const assay_model* model) {
  struct {
    assay_context_options known;
    int64_t later;
  } longer;
  assay_context_options options;
  assay_context* context = NULL;
  memset(&options, 0xff, sizeof options);
  assay_context_options_init(&options, sizeof options);
  CHECK(options.size == sizeof options && options.n_sequences == 1 && options.numerics == NULL);
  options.size = offsetof(assay_context_options, n_threads); /* as if nothing came after it */
  options.n_ctx = 17;
  options.n_sequences = -5;
  OK(assay_context_new(model, &options, &context, &error));
  CHECK(assay_context_n_ctx(context) == 17);
  assay_context_free(context);
  memset(&longer, 0xff, sizeof longer);
  assay_context_options_init(&longer.known, sizeof longer);
  CHECK(longer.known.size == sizeof longer && longer.later == 0);
  OK(assay_context_new(model, &longer.known, &context, &error));
  assay_context_free(context);
  longer.later = 1;
  REFUSED(assay_context_new(model, &longer.known, &context, &error), ASSAY_BAD_REQUEST, "assay_context_options");
  memset(&options, 0, sizeof options);
  REFUSED(assay_context_new(model, &options, &context, &error), ASSAY_BAD_REQUEST, "assay_context_options_init");
  assay_context_options_init(&options, sizeof options);
  options.numerics = "sloppy";
  REFUSED(assay_context_new(model, &options, &context, &error), ASSAY_BAD_REQUEST, "sloppy");
}

static void test_context(const assay_model* model, const int32_t* ids, size_t n_ids) {
  assay_context_options options;
  assay_context* context = NULL;
  char digest[ASSAY_DIGEST_BYTES], kv_digest[ASSAY_DIGEST_BYTES];
  assay_batch_token batch[2];
  float* kept = NULL;
  const float* logits = NULL;
  size_t n_logits = 0, n_run = 0;
  int64_t n_rows = 0, n_past = 0;
  assay_context_options_init(&options, sizeof options);
  options.n_ctx = 64;
  options.n_sequences = 2;
  options.n_threads = 1;
  OK(assay_context_new(model, &options, &context, &error));
  REFUSED(assay_context_logits(context, &logits, &n_logits, &error), ASSAY_BAD_REQUEST, "");
  OK(assay_context_decode_all(context, ids, n_ids, 0, count_rows, &n_rows, &n_run, &error));
  CHECK(n_rows == (int64_t)n_ids && n_run == n_ids);
  OK(assay_context_logits_digest(context, digest, &error));
  OK(assay_context_kv_digest(context, 0, kv_digest, &error));
  CHECK(strlen(digest) == 32 && strlen(kv_digest) == 32);
  OK(assay_context_logits(context, &logits, &n_logits, &error));
  CHECK(n_logits == (size_t)assay_model_vocab_size(model));
  kept = (float*)malloc(n_logits * sizeof *kept);
  CHECK(kept != NULL);
  memcpy(kept, logits, n_logits * sizeof *kept);

  /* All but the last token anew, then that one in a batch beside another sequence: the same bits. */
  OK(assay_context_truncate(context, 0, 0, &error));
  OK(assay_context_decode(context, ids, n_ids - 1, 0, &n_run, &error));
  batch[0].token = ids[0];
  batch[0].sequence = 1;
  batch[0].wants_logits = 1;
  batch[1].token = ids[n_ids - 1];
  batch[1].sequence = 0;
  batch[1].wants_logits = 1;
  OK(assay_context_decode_batch(context, batch, 2, &error));
  OK(assay_context_batch_logits(context, 1, &logits, &n_logits, &error));
  CHECK(memcmp(kept, logits, n_logits * sizeof *kept) == 0);
  REFUSED(assay_context_batch_logits(context, 2, &logits, &n_logits, &error), ASSAY_BAD_REQUEST, "2");
  OK(assay_context_n_past(context, 1, &n_past, &error));
  CHECK(n_past == 1);
  free(kept);

  assay_context_set_cancel(context, at_once, NULL);
  assay_context_clear(context);
  OK(assay_context_decode(context, ids, n_ids, 0, &n_run, &error));
  CHECK(n_run == 0);
  assay_context_free(context);
  printf("%s %s\n", digest, kv_digest);
}

static void test_generate(const assay_model* model, const int32_t* ids, size_t n_ids) {
  assay_context* context = NULL;
  assay_generation *first = NULL, *second = NULL;
  assay_sampling sampling;
  assay_logit_bias bias;
  assay_generate_options options;
  struct heard heard = {0, 0, 0};
  size_t n_first = 0, n_second = 0, n_bytes = 0, i = 0;
  const int32_t *drawn = NULL, *again = NULL;
  OK(assay_context_new(model, NULL, &context, &error));
  OK(assay_model_sampling(model, &sampling, sizeof sampling, &error));
  CHECK(sampling.size == sizeof sampling && sampling.top_k == 40);
  assay_generate_options_init(&options, sizeof options);
  CHECK(options.n_predict == -1);
  sampling.seed = 7;
  options.sampling = &sampling;
  options.n_predict = 12;
  options.ignore_eos = 1;
  options.on_text = hear;
  options.user = &heard;
  OK(assay_generate(context, ids, n_ids, &options, &first, &error));
  drawn = assay_generation_ids(first, &n_first);
  CHECK(n_first == 12 && assay_generation_finish(first) == ASSAY_FINISH_LENGTH);
  CHECK(strlen(assay_generation_text(first, &n_bytes)) <= n_bytes && heard.n_bytes == n_bytes && heard.n_calls > 1);
  OK(assay_generate(context, ids, n_ids, &options, &second, &error));
  again = assay_generation_ids(second, &n_second);
  CHECK(n_second == n_first && memcmp(drawn, again, n_first * sizeof *drawn) == 0);
  CHECK(assay_generation_n_prompt(second) == (int64_t)n_ids &&
        assay_generation_n_prompt_cached(second) == (int64_t)n_ids - 1);
  assay_generation_free(second);

  bias.token = drawn[0];
  bias.bias = -INFINITY;
  sampling.logit_bias = &bias;
  sampling.n_logit_bias = 1;
  OK(assay_generate(context, ids, n_ids, &options, &second, &error));
  again = assay_generation_ids(second, &n_second);
  for (i = 0; i < n_second; ++i) CHECK(again[i] != drawn[0]);
  assay_generation_free(second);
  assay_generation_free(first);

  heard.n_calls = 0;
  heard.stops_after = 2;
  OK(assay_generate(context, ids, n_ids, &options, &first, &error));
  assay_generation_ids(first, &n_first);
  CHECK(assay_generation_finish(first) == ASSAY_FINISH_CANCELLED && n_first < 12);
  assay_generation_free(first);
  sampling.top_p = -1;
  REFUSED(assay_generate(context, ids, n_ids, &options, &first, &error), ASSAY_BAD_REQUEST, "top");
  assay_context_free(context);
}

static void test_chat(const assay_model* model) {
  assay_context_options context_options;
  assay_chat_options chat_options;
  assay_generate_options options;
  assay_chat* chat = NULL;
  assay_generation* generation = NULL;
  char* json = NULL;
  const char* stop[] = {"q"};
  struct heard heard = {0, 0, 0};
  assay_context_options_init(&context_options, sizeof context_options);
  context_options.n_ctx = 256;
  assay_chat_options_init(&chat_options, sizeof chat_options);
  chat_options.system = "short";
  OK(assay_chat_new(model, &context_options, &chat_options, &chat, &error));
  assay_generate_options_init(&options, sizeof options);
  options.n_predict = 8;
  options.stop = stop;
  options.n_stop = 1;
  options.on_text = hear;
  options.user = &heard;
  OK(assay_chat_send(chat, "the sea", &options, &generation, &error));
  CHECK(strchr(assay_generation_text(generation, NULL), 'q') == NULL);
  assay_generation_free(generation);
  OK(assay_chat_save(chat, &json, &error));
  CHECK(strstr(json, "\"the sea\"") != NULL && strstr(json, "\"short\"") != NULL);
  OK(assay_chat_regenerate(chat, NULL, &generation, &error));
  assay_generation_free(generation);
  CHECK(assay_chat_undo(chat) && !assay_chat_undo(chat));
  REFUSED(assay_chat_regenerate(chat, NULL, &generation, &error), ASSAY_BAD_REQUEST, "");
  OK(assay_chat_load(chat, json, &error));
  CHECK(assay_chat_undo(chat));
  REFUSED(assay_chat_load(chat, "no json", &error), ASSAY_BAD_REQUEST, "");
  assay_free(json);
  assay_chat_free(chat);
  chat_options.chat_template = "{% if %}";
  REFUSED(assay_chat_new(model, NULL, &chat_options, &chat, &error), ASSAY_BAD_REQUEST, "");
}

static void test_checks(const assay_model* model, const char* path) {
  assay_context_options context_options;
  assay_context *context = NULL, *base = NULL;
  assay_verify_options options;
  assay_perplexity_options perplexity_options;
  assay_report* report = NULL;
  char* text = NULL;
  size_t n_bytes = 0;
  int32_t ids[32];
  int i = 0;
  struct {
    assay_perplexity_result known;
    int64_t beyond;
  } result;
  assay_verify_options_init(&options, sizeof options);
  options.cancelled = at_once;
  OK(assay_verify(path, &options, &report, &error));
  CHECK(assay_report_cancelled(report) && !assay_report_passed(report));
  OK(assay_report_write(report, ASSAY_JSON, &text, &n_bytes, &error));
  CHECK(n_bytes == strlen(text) && text[0] == '{');
  assay_free(text);
  REFUSED(assay_report_write(report, (assay_format)9, &text, &n_bytes, &error), ASSAY_BAD_REQUEST, "9");
  assay_report_free(report);

  for (i = 0; i < 32; ++i) ids[i] = 3 + i * 7;
  assay_context_options_init(&context_options, sizeof context_options);
  context_options.n_ctx = 16;
  OK(assay_context_new(model, &context_options, &context, &error));
  context_options.cache_k = "q8_0";
  OK(assay_context_new(model, &context_options, &base, &error));
  assay_perplexity_options_init(&perplexity_options, sizeof perplexity_options);
  perplexity_options.n_chunk = 16;
  result.known.size = sizeof result.known;
  result.beyond = 42;
  OK(assay_perplexity(context, base, ids, 32, &perplexity_options, &result.known, &error));
  CHECK(result.known.n_chunks == 2 && result.known.perplexity > 1 && result.known.kl_divergence > 0 &&
        result.beyond == 42);
  assay_context_free(base);
  assay_context_free(context);
}

int main(int argc, char** argv) {
  assay_model* model = NULL;
  int32_t ids[64];
  size_t n_ids = 0;
  char* at = NULL;
  if (argc == 2 && strcmp(argv[1], "--layout") == 0) {
    print_layout();
    return 0;
  }
  if (argc != 3) return 2;
  for (at = argv[2]; n_ids < 64 && *at != '\0'; at += *at == ',') ids[n_ids++] = (int32_t)strtol(at, &at, 10);
  test_errors(argv[1]);
  OK(assay_model_load(argv[1], &model, &error));
  CHECK(strcmp(assay_model_architecture(model), "llama") == 0 && strcmp(assay_model_path(model), argv[1]) == 0);
  test_tokens(model);
  test_sizes(model);
  test_context(model, ids, n_ids);
  test_generate(model, ids, n_ids);
  test_chat(model);
  test_checks(model, argv[1]);
  assay_model_free(model);
  return 0;
}
