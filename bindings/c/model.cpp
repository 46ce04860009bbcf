// Models and tokenizers of the C interface.
#include <cstdlib>

#include "assay/store.h"
#include "handles.h"

using assay::Model;
using assay::Tokenizer;
using assay::c::guarded;
using assay::c::required;

assay_model::assay_model(std::shared_ptr<const Model> loaded)
    : model(std::move(loaded)), name(model->name()), architecture(model->architecture()),
      weights_type(model->weights_type()), chat_template(model->chat_template_source()) {}

assay_status assay_model_find(const char* path_or_name, char** path, assay_error** error) {
  return guarded(error, [&] {
    const assay::StoreEnvironment environment =
        assay::store_environment([](const char* name) -> const char* { return std::getenv(name); });
    const assay::ModelStores stores(assay::store_folders(environment));
    required(path, "path") = assay::c::copied(stores.resolve(&required(path_or_name, "path_or_name")));
  });
}

assay_status assay_model_load(const char* path, assay_model** model, assay_error** error) {
  return guarded(error, [&] { required(model, "model") = new assay_model(Model::load(&required(path, "path"))); });
}

void assay_model_free(assay_model* model) { delete model; }

const char* assay_model_path(const assay_model* model) { return model->model->path().c_str(); }
const char* assay_model_name(const assay_model* model) { return model->name.c_str(); }
const char* assay_model_architecture(const assay_model* model) { return model->architecture.c_str(); }
const char* assay_model_weights_type(const assay_model* model) { return model->weights_type.c_str(); }
const char* assay_model_chat_template(const assay_model* model) { return model->chat_template.c_str(); }
int64_t assay_model_vocab_size(const assay_model* model) { return model->model->vocab_size(); }
int64_t assay_model_n_ctx_train(const assay_model* model) { return model->model->n_ctx_train(); }
int64_t assay_model_d_model(const assay_model* model) { return model->model->d_model(); }
int64_t assay_model_n_layers(const assay_model* model) { return model->model->n_layers(); }
int64_t assay_model_n_parameters(const assay_model* model) { return model->model->n_parameters(); }
int64_t assay_model_file_bytes(const assay_model* model) { return model->model->file_bytes(); }

assay_status assay_tokenizer_load(const char* path, assay_tokenizer** tokenizer, assay_error** error) {
  return guarded(
      error, [&] { required(tokenizer, "tokenizer") = new assay_tokenizer{Tokenizer::load(&required(path, "path"))}; });
}

assay_status assay_model_tokenizer(const assay_model* model, assay_tokenizer** tokenizer, assay_error** error) {
  return guarded(error, [&] {
    required(tokenizer, "tokenizer") = new assay_tokenizer{required(model, "model").model->tokenizer()};
  });
}

void assay_tokenizer_free(assay_tokenizer* tokenizer) { delete tokenizer; }

assay_status assay_tokenize(const assay_tokenizer* tokenizer, const char* text, size_t n_bytes, int parse_special,
                            int32_t** ids, size_t* n_ids, assay_error** error) {
  return guarded(error, [&] {
    const auto bytes = assay::c::array(text, n_bytes, "text");
    auto& to = required(ids, "ids");
    auto& count = required(n_ids, "n_ids");
    const std::vector<int32_t> found =
        required(tokenizer, "tokenizer")
            .tokenizer->encode(std::string_view(bytes.data(), bytes.size()),
                               {.parse_special = parse_special != 0, .add_bos = {}, .add_eos = {}});
    to = assay::c::copied(found);
    count = found.size();
  });
}

assay_status assay_detokenize(const assay_tokenizer* tokenizer, const int32_t* ids, size_t n_ids, int special,
                              char** text, size_t* n_bytes, assay_error** error) {
  return guarded(error, [&] {
    auto& to = required(text, "text");
    const std::string found =
        required(tokenizer, "tokenizer").tokenizer->decode(assay::c::array(ids, n_ids, "ids"), special != 0);
    to = assay::c::copied(found);
    if (n_bytes != nullptr) *n_bytes = found.size();
  });
}

int32_t assay_tokenizer_vocab_size(const assay_tokenizer* tokenizer) { return tokenizer->tokenizer->vocab_size(); }
int32_t assay_tokenizer_bos(const assay_tokenizer* tokenizer) { return tokenizer->tokenizer->bos().value_or(-1); }
int32_t assay_tokenizer_eos(const assay_tokenizer* tokenizer) { return tokenizer->tokenizer->eos().value_or(-1); }
int assay_tokenizer_ends_generation(const assay_tokenizer* tokenizer, int32_t id) {
  return tokenizer->tokenizer->is_end_of_generation(id) ? 1 : 0;
}
