/* Streams the answers to lines of standard input, as one conversation.   usage: chat MODEL (a path, or a name of `assay
 * list`) */
#include <assay/assay.h>
#include <stdio.h>
#include <string.h>

static int show(void* user, const char* text, size_t n_bytes) {
  (void)user;
  fwrite(text, 1, n_bytes, stdout);
  return fflush(stdout); /* other than 0 ends the answer */
}

static int failed(assay_error* error) {
  fprintf(stderr, "%s: %s\n", assay_status_name(assay_error_code(error)), assay_error_message(error));
  assay_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  char* path = NULL;
  char line[4096];
  assay_error* error = NULL;
  assay_model* model = NULL;
  assay_chat* chat = NULL;
  assay_sampling sampling;
  assay_chat_options chat_options;
  assay_generate_options options;
  if (argc != 2) return 2;
  if (assay_model_find(argv[1], &path, &error) || assay_model_load(path, &model, &error)) return failed(error);
  if (assay_model_sampling(model, &sampling, sizeof sampling, &error)) return failed(error);
  sampling.temperature = 0;
  assay_chat_options_init(&chat_options, sizeof chat_options);
  chat_options.system = "Answer in one line.";
  if (assay_chat_new(model, NULL, &chat_options, &chat, &error)) return failed(error);
  assay_generate_options_init(&options, sizeof options);
  options.n_predict = 64;
  options.sampling = &sampling;
  options.on_text = show;
  while (fgets(line, sizeof line, stdin) != NULL) {
    assay_generation* answer = NULL;
    size_t n_ids = 0;
    line[strcspn(line, "\n")] = '\0';
    if (assay_chat_send(chat, line, &options, &answer, &error)) return failed(error);
    assay_generation_ids(answer, &n_ids);
    fprintf(stderr, "\n[%zu tokens]\n", n_ids);
    assay_generation_free(answer);
  }
  assay_chat_free(chat);
  assay_model_free(model);
  assay_free(path);
  return 0;
}
