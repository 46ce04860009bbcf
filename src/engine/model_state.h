// What a Model holds, for the rooms' own use (contexts, inspect, trace). Programs use assay/model.h.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "assay/model.h"
#include "gguf/file.h"
#include "model/build.h"

namespace assay {

struct Model::State {
  State(std::string file_path, gguf::File opened) : path(std::move(file_path)), file(std::move(opened)) {}

  // Positions that it was trained with and that this build runs: some families' contexts end before (Plan::n_ctx_max).
  int64_t n_ctx_usable() const noexcept {
    const int64_t end = built.plan.n_ctx_max;
    return end > 0 && end < built.hparams.n_ctx_train ? end : built.hparams.n_ctx_train;
  }

  std::string path;
  gguf::File file;
  model::BuiltModel built;  // its plan's weights point into the file's map
  std::string name;
  std::string architecture;
  std::string weights_type;
  int64_t n_parameters = 0;
  int64_t tensors_bytes = 0;
  int64_t weights_bytes = 0;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string chat_template_source;
  std::string overrides;  // of the file's metadata, a line each: with others it is another model. Empty: none
  std::shared_ptr<const ChatTemplate> chat_template;
  LoadTiming load_timing;
  std::exception_ptr chat_template_error;  // why the source could not be parsed
};

}  // namespace assay
