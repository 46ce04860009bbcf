// The C interface: C99, and C++ from C++11 on. Link libassay-c (pkg-config assay-c). docs/library.md, examples/c.
//
// Handles are opaque; whoever made one frees it, in any order: what a handle needs of another it keeps alive itself.
// Every x_free takes NULL; what cannot fail takes no other NULL handle. Strings are UTF-8.
//
// Whatever can fail returns an assay_status and takes, last, where to put an error object (NULL: nobody asks). On
// failure nothing else is written.
//
// Options are structs whose first field is their size: fill them with their x_init(&x, sizeof x), then change fields,
// so that a program built with these headers works with later libraries. Of results the caller says the size.
//
// Threads: an assay_model, an assay_tokenizer, an assay_generation and an assay_report may be used by any number of
// threads at a time; an assay_context and an assay_chat by one at a time. There is no other state. Callbacks are called
// by the thread that is in the call; they must neither throw nor use the handle that called them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "assay/version.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Version of the library that runs: "0.1.0", and the numbers as 10000 * major + 100 * minor + patch.
const char* assay_version(void);
int32_t assay_version_number(void);

// ---- Errors

typedef enum assay_status {
  ASSAY_OK = 0,
  ASSAY_BAD_FILE = 1,     // a model, tokenizer or template that breaks its format
  ASSAY_UNSUPPORTED = 2,  // a valid thing that this build does not serve, named in the message
  ASSAY_OUT_OF_MEMORY = 3,
  ASSAY_BAD_REQUEST = 4,  // an argument or option that cannot be served
  ASSAY_IO = 5,           // the operating system refused a file
  ASSAY_DEVICE = 6,       // a GPU or its driver failed
  ASSAY_INTERNAL = 7      // a defect of the library
} assay_status;

typedef struct assay_error assay_error;
assay_status assay_error_code(const assay_error* error);
// Which thing, what was needed, what was found; valid until the error is freed.
const char* assay_error_message(const assay_error* error);
void assay_error_free(assay_error* error);
const char* assay_status_name(assay_status status);  // "bad_file", ...

void assay_free(void* memory);  // strings and arrays that a function below says are to be freed so

// ---- Models

typedef struct assay_model assay_model;

// The path of the file that a path or a model's name means (docs/models.md). Reads the environment: HOME, ASSAY_MODELS
// and the variables of other programs' stores. *path: assay_free.
assay_status assay_model_find(const char* path_or_name, char** path, assay_error** error);
assay_status assay_model_load(const char* path, assay_model** model, assay_error** error);
void assay_model_free(assay_model* model);

// Strings are valid as long as the model.
const char* assay_model_path(const assay_model* model);
const char* assay_model_name(const assay_model* model);           // general.name, or the file's name
const char* assay_model_architecture(const assay_model* model);   // "llama"
const char* assay_model_weights_type(const assay_model* model);   // "Q4_K"
const char* assay_model_chat_template(const assay_model* model);  // Jinja; empty where the file has none
int64_t assay_model_vocab_size(const assay_model* model);
int64_t assay_model_n_ctx_train(const assay_model* model);
int64_t assay_model_d_model(const assay_model* model);
int64_t assay_model_n_layers(const assay_model* model);
int64_t assay_model_n_parameters(const assay_model* model);
int64_t assay_model_file_bytes(const assay_model* model);

// ---- Tokens

typedef struct assay_tokenizer assay_tokenizer;

// A vocabulary-only file will do.
assay_status assay_tokenizer_load(const char* path, assay_tokenizer** tokenizer, assay_error** error);
assay_status assay_model_tokenizer(const assay_model* model, assay_tokenizer** tokenizer, assay_error** error);
void assay_tokenizer_free(assay_tokenizer* tokenizer);

// parse_special: the text of a control token becomes that token. BOS and EOS as the file says. *ids: assay_free.
assay_status assay_tokenize(const assay_tokenizer* tokenizer, const char* text, size_t n_bytes, int parse_special,
                            int32_t** ids, size_t* n_ids, assay_error** error);
// special: control tokens appear as their text. *text ends with a NUL that *n_bytes does not count: assay_free.
assay_status assay_detokenize(const assay_tokenizer* tokenizer, const int32_t* ids, size_t n_ids, int special,
                              char** text, size_t* n_bytes, assay_error** error);
int32_t assay_tokenizer_vocab_size(const assay_tokenizer* tokenizer);
int32_t assay_tokenizer_bos(const assay_tokenizer* tokenizer);  // -1: none
int32_t assay_tokenizer_eos(const assay_tokenizer* tokenizer);  // -1: none
int assay_tokenizer_ends_generation(const assay_tokenizer* tokenizer, int32_t id);

// ---- Contexts: tokens to logits

typedef struct assay_context assay_context;

// Names are those of the program's flags; NULL: the default. What they mean: assay/context.h.
typedef struct assay_context_options {
  size_t size;
  int64_t n_ctx;          // positions of a sequence; 0: the smaller of the model's own and 4096
  int64_t n_ubatch;       // tokens of a chunk at most
  int64_t n_outputs_max;  // rows of logits kept at a time; 0: as the library chooses
  int64_t n_gpu_layers;   // -1: all
  int32_t n_threads;      // 0: one per physical core
  int32_t n_sequences;
  int32_t activation_bits;  // of "exact": 15 or 8; of "fast" also 16
  int32_t pin_threads;
  const char* numerics;  // "exact", "f32", "fast", "oracle"
  const char* cache_k;   // "f16", "q8_0", "f32"
  const char* cache_v;
  const char* kernels;         // "auto", "reference", "avx2", ..., "avx2:vector"
  const char* backend;         // "cpu" (the default), "cuda", "vulkan", "auto"
  const char* split_mode;      // "layer", "tensor"
  const int32_t* devices;      // n_devices of them; NULL: the first
  const float* device_shares;  // as many; NULL: the same of each
  size_t n_devices;
} assay_context_options;
void assay_context_options_init(assay_context_options* options, size_t size);

assay_status assay_context_new(const assay_model* model, const assay_context_options* options, assay_context** context,
                               assay_error** error);
void assay_context_free(assay_context* context);

typedef int (*assay_cancel_callback)(void* user);  // other than 0: the work ends early
typedef void (*assay_progress_callback)(void* user, int64_t done, int64_t total);
typedef void (*assay_logits_callback)(void* user, int64_t position, const double* logits, size_t n_logits);
// Polled before every chunk; NULL: never.
void assay_context_set_cancel(assay_context* context, assay_cancel_callback cancelled, void* user);
// Told after every chunk; NULL: nobody.
void assay_context_set_progress(assay_context* context, assay_progress_callback progress, void* user);

// Runs tokens at the positions that follow the sequence's last one. *n_run (NULL: nobody asks): how many were run;
// fewer than n_ids where the cancel callback said so.
assay_status assay_context_decode(assay_context* context, const int32_t* ids, size_t n_ids, int32_t sequence,
                                  size_t* n_run, assay_error** error);
// The same, with the logits after every token, in order, as doubles; they are valid during the call.
assay_status assay_context_decode_all(assay_context* context, const int32_t* ids, size_t n_ids, int32_t sequence,
                                      assay_logits_callback sink, void* user, size_t* n_run, assay_error** error);
// Tokens of several sequences in one pass over the weights.
typedef struct assay_batch_token {
  int32_t token;
  int32_t sequence;
  int32_t wants_logits;
} assay_batch_token;
assay_status assay_context_decode_batch(assay_context* context, const assay_batch_token* tokens, size_t n_tokens,
                                        assay_error** error);

// Valid until the context's next run. logits: after the last token run; batch_logits: after the i-th token of the last
// batch that wanted them.
assay_status assay_context_logits(const assay_context* context, const float** logits, size_t* n_logits,
                                  assay_error** error);
assay_status assay_context_batch_logits(const assay_context* context, int64_t i_output, const float** logits,
                                        size_t* n_logits, assay_error** error);

int64_t assay_context_n_ctx(const assay_context* context);
assay_status assay_context_n_past(const assay_context* context, int32_t sequence, int64_t* n_past, assay_error** error);
assay_status assay_context_truncate(assay_context* context, int64_t n_positions, int32_t sequence, assay_error** error);
void assay_context_clear(assay_context* context);

// 32 hexadecimal digits and a NUL over the bits of every position's logits (after assay_context_decode_all from
// position 0 on), and of the cache: those that `assay logits` prints.
enum { ASSAY_DIGEST_BYTES = 33 };
assay_status assay_context_logits_digest(const assay_context* context, char digest[33], assay_error** error);
assay_status assay_context_kv_digest(const assay_context* context, int32_t sequence, char digest[33],
                                     assay_error** error);

// ---- Sampling

typedef struct assay_logit_bias {
  int32_t token;
  float bias;  // minus infinity forbids the token
} assay_logit_bias;

// What each step does, and at which value it does nothing: assay/sampler.h.
typedef struct assay_sampling {
  size_t size;
  uint64_t seed;
  double temperature;  // 0: the likeliest token
  double dynamic_range;
  double dynamic_exponent;
  int64_t top_k;
  double top_p;
  double min_p;
  double typical_p;
  double top_n_sigma;
  double xtc_probability;
  double xtc_threshold;
  int64_t penalty_last_n;
  double repeat_penalty;
  double frequency_penalty;
  double presence_penalty;
  double dry_multiplier;
  double dry_base;
  int64_t dry_allowed_length;
  int64_t dry_penalty_last_n;
  const char* const* dry_sequence_breakers;  // NULL: the default ones
  size_t n_dry_sequence_breakers;
  const assay_logit_bias* logit_bias;
  size_t n_logit_bias;
} assay_sampling;
void assay_sampling_init(assay_sampling* sampling, size_t size);
// The same with what the model's file asks for put over it.
assay_status assay_model_sampling(const assay_model* model, assay_sampling* sampling, size_t size, assay_error** error);

// ---- Answers

// Text as it becomes certain: whole characters, n_bytes of them and no NUL. Other than 0 ends the answer there.
typedef int (*assay_text_callback)(void* user, const char* text, size_t n_bytes);

typedef struct assay_generate_options {
  size_t size;
  int64_t n_predict;        // tokens at most; < 0: until the context is full
  const char* const* stop;  // the answer ends before the first of these
  size_t n_stop;
  uint64_t request;  // keys the draws together with the seed
  int32_t sequence;  // of assay_generate: which one of the context's
  int32_t ignore_eos;
  int32_t special;                 // control tokens appear in the text
  int32_t reserved;                // 0
  const assay_sampling* sampling;  // NULL: what the model's file asks for
  assay_text_callback on_text;
  assay_cancel_callback cancelled;  // polled between tokens and chunks
  void* user;                       // given to both
} assay_generate_options;
void assay_generate_options_init(assay_generate_options* options, size_t size);

typedef enum assay_finish { ASSAY_FINISH_STOP = 0, ASSAY_FINISH_LENGTH = 1, ASSAY_FINISH_CANCELLED = 2 } assay_finish;

typedef struct assay_generation assay_generation;
// Valid as long as the generation; texts end with a NUL that *n_bytes (NULL: nobody asks) does not count.
const char* assay_generation_text(const assay_generation* generation, size_t* n_bytes);
// Of a chat that parts it; else empty.
const char* assay_generation_reasoning(const assay_generation* generation, size_t* n_bytes);
// All tokens drawn.
const int32_t* assay_generation_ids(const assay_generation* generation, size_t* n_ids);
assay_finish assay_generation_finish(const assay_generation* generation);
int64_t assay_generation_n_prompt(const assay_generation* generation);
int64_t assay_generation_n_prompt_cached(const assay_generation* generation);
double assay_generation_prefill_ms(const assay_generation* generation);
double assay_generation_decode_ms(const assay_generation* generation);
void assay_generation_free(assay_generation* generation);

// What the prompt has in common with what assay_generate ran last in the sequence stays in the KV cache.
assay_status assay_generate(assay_context* context, const int32_t* prompt, size_t n_prompt,
                            const assay_generate_options* options, assay_generation** generation, assay_error** error);

// ---- Conversations

typedef struct assay_chat assay_chat;

typedef struct assay_chat_options {
  size_t size;
  const char* system;          // NULL or empty: no system message
  const char* chat_template;   // Jinja; NULL or empty: the model's own
  const char* variables_json;  // further variables of the template: an object; NULL: none
  int32_t drops_oldest;        // where the context is full, the oldest turns leave it; 0: the answer ends
  int32_t parts_reasoning;     // what the model thinks aloud is kept apart from its answer
} assay_chat_options;
void assay_chat_options_init(assay_chat_options* options, size_t size);

assay_status assay_chat_new(const assay_model* model, const assay_context_options* context_options,
                            const assay_chat_options* options, assay_chat** chat, assay_error** error);
void assay_chat_free(assay_chat* chat);
// One turn. An error leaves the conversation as it was; of an answer that was stopped, what came stays in it.
assay_status assay_chat_send(assay_chat* chat, const char* text, const assay_generate_options* options,
                             assay_generation** generation, assay_error** error);
assay_status assay_chat_regenerate(assay_chat* chat, const assay_generate_options* options,
                                   assay_generation** generation, assay_error** error);
assay_status assay_chat_set_system(assay_chat* chat, const char* text, assay_error** error);
int assay_chat_undo(assay_chat* chat);  // 0 where there was no message of the user
void assay_chat_clear(assay_chat* chat);
assay_status assay_chat_save(const assay_chat* chat, char** json, assay_error** error);  // *json: assay_free
assay_status assay_chat_load(assay_chat* chat, const char* json, assay_error** error);

// ---- Checks

typedef struct assay_verify_options {
  size_t size;
  const assay_context_options* context;  // what is verified; NULL: the defaults
  const char* prompt;                    // NULL: probes chosen to touch every edge
  const char* const* against;            // dumps (paths) or modes
  size_t n_against;
  int32_t quick;
  int32_t reserved;  // 0
  assay_cancel_callback cancelled;
  void* user;
} assay_verify_options;
void assay_verify_options_init(assay_verify_options* options, size_t size);

typedef struct assay_report assay_report;
assay_status assay_verify(const char* path, const assay_verify_options* options, assay_report** report,
                          assay_error** error);
int assay_report_passed(const assay_report* report);
int assay_report_cancelled(const assay_report* report);
typedef enum assay_format { ASSAY_TEXT = 0, ASSAY_JSON = 1, ASSAY_HTML = 2 } assay_format;
// *text: assay_free.
assay_status assay_report_write(const assay_report* report, assay_format format, char** text, size_t* n_bytes,
                                assay_error** error);
void assay_report_free(assay_report* report);

typedef struct assay_perplexity_options {
  size_t size;
  int64_t n_chunk;       // tokens of a chunk; each is run from an empty context and scored on its second half
  int64_t n_chunks_max;  // 0: all
  assay_cancel_callback cancelled;
  void* user;
} assay_perplexity_options;
void assay_perplexity_options_init(assay_perplexity_options* options, size_t size);

typedef struct assay_perplexity_result {
  size_t size;
  int64_t n_tokens;
  int64_t n_scored;
  int64_t n_chunks;  // done
  int64_t n_chunks_asked;
  double perplexity;
  double perplexity_error;  // standard error
  double mean_nll;
  double mean_nll_error;
  double base_perplexity;  // these only where there is a base, else 0
  double kl_divergence;    // mean, from the base's distribution
  double kl_divergence_error;
  double same_top;  // share of positions whose likeliest token is the same
} assay_perplexity_result;
// base: NULL, or the context whose distributions are the reference. Both are cleared first. result->size must be set.
assay_status assay_perplexity(assay_context* context, assay_context* base, const int32_t* ids, size_t n_ids,
                              const assay_perplexity_options* options, assay_perplexity_result* result,
                              assay_error** error);

#ifdef __cplusplus
}  // extern "C"
#endif
