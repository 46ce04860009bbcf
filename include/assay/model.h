// A model: one GGUF file (or the first shard of a split one), mapped, checked and turned into a plan. Immutable once
// loaded; any number of Contexts share it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "assay/chat.h"
#include "assay/tokenizer.h"

namespace assay {

struct LoadOptions {
  bool tokenizer = true;  // false: the file's vocabulary is not read, tokenizer() is null and only ids can be fed
};

// How long the parts of Model::load took.
struct LoadTiming {
  double open_ms = 0;        // maps the file and reads its header: metadata and tensor directory
  double plan_ms = 0;        // hyper-parameters and weights to a plan
  double vocabulary_ms = 0;  // the tokenizer
  double template_ms = 0;    // the chat template
  double total_ms() const noexcept { return open_ms + plan_ms + vocabulary_ms + template_ms; }
};

class Model {  // any number of threads at a time
 public:
  // Error(io) where the file cannot be read, Error(bad_file) where it breaks its format or contradicts itself,
  // Error(unsupported) for an architecture, weight type, rope scaling or pre-tokenizer that this build does not serve,
  // by name.
  static std::shared_ptr<const Model> load(const std::string& path, const LoadOptions& options = {});

  // Null only where it was loaded without.
  const std::shared_ptr<const Tokenizer>& tokenizer() const noexcept;
  // The file's own template, parsed; null where the file has none. Throws the Error of its parsing where it cannot be
  // served, so that such a model still answers without it.
  const std::shared_ptr<const ChatTemplate>& chat_template() const;
  std::string_view chat_template_source() const noexcept;  // empty where the file has none

  const std::string& path() const noexcept;
  std::string_view name() const noexcept;          // general.name, or the file's name where it has none
  std::string_view architecture() const noexcept;  // "llama", "gemma3"
  std::string_view weights_type() const noexcept;  // the tensor type most weights' elements have, e.g. "Q4_K"
  int64_t vocab_size() const noexcept;
  bool has_logits()
      const noexcept;  // false: an encoder, which writes no text: embeddings are all it gives (assay/embed.h)
  int64_t n_ctx_train() const noexcept;
  int64_t d_model() const noexcept;
  int64_t n_layers() const noexcept;
  int64_t n_parameters() const noexcept;   // elements of all tensors
  int64_t file_bytes() const noexcept;     // of all shards
  int64_t tensors_bytes() const noexcept;  // of all tensors, as stored
  int64_t weights_bytes() const noexcept;  // of the tensors that a run reads, a tied head counted once

  const LoadTiming& load_timing() const noexcept;

  struct State;  // engine/model_state.h, for the library itself
  explicit Model(std::unique_ptr<const State> state);
  ~Model();
  const State& state() const noexcept { return *state_; }

 private:
  std::unique_ptr<const State> state_;
};

}  // namespace assay
