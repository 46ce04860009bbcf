// Texts to vectors: the rows of a model's last norm, pooled and brought to length 1. A text's vector has the bits that
// it has alone, whatever is embedded beside it and however long the chunks are (docs/numerics.md, "Embeddings").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/context.h"
#include "assay/model.h"

namespace assay {

enum class Pooling { mean, cls, last };  // of all tokens' rows; the first token's; the last one's

std::string_view name(Pooling pooling) noexcept;
Pooling parse_pooling(std::string_view text);  // Error(bad_request) that lists the names
// What the file says (pooling_type); none where it says nothing. Error(unsupported) for what is none of the above: a
// reranker's.
std::optional<Pooling> pooling_of(const Model& model);

struct EmbedOptions {
  // n_sequences: texts that run at once, 0 for as many as fit into 256 MiB of keys and values, 32 at most. An encoder
  // runs a text whole: n_ubatch becomes n_ctx where it is less. The cache lives as long as a text is run, so it keeps
  // keys and values as they are unless asked otherwise.
  ContextOptions context = embedding_context();
  std::optional<Pooling> pooling;  // none: the file's
  bool normalize = true;

  static ContextOptions embedding_context() {
    ContextOptions options;
    options.cache_k = options.cache_v = KvType::f32;
    options.n_sequences = 0;
    return options;
  }
};

class Embedder {  // one thread at a time
 public:
  // Error(bad_request) where neither the file nor the options name a pooling, and for options that cannot be served.
  Embedder(std::shared_ptr<const Model> model, const EmbedOptions& options = {});

  // One vector a text, in order: float32 values, widened; in mode oracle its own numbers. Before any work
  // Error(bad_request) for a text of no tokens, an id that is not of the vocabulary, a text longer than n_ctx. The
  // cancel hook is asked before every run; where it says stop, no vectors come back.
  std::vector<std::vector<double>> embed(std::span<const std::vector<TokenId>> texts);

  int64_t width() const noexcept;  // of a vector
  Pooling pooling() const noexcept { return pooling_; }
  bool normalizes() const noexcept { return normalize_; }
  const Context& context() const noexcept { return context_; }
  void set_cancel(std::function<bool()> cancelled) { cancelled_ = std::move(cancelled); }
  void set_progress(std::function<void(int64_t done, int64_t total)> progress) {
    progress_ = std::move(progress);
  }  // in tokens

 private:
  struct Work;
  void check(std::span<const std::vector<TokenId>> texts) const;
  void finish(Work& work, std::vector<double>& out);

  Pooling pooling_;
  bool normalize_;
  Context context_;
  std::function<bool()> cancelled_;
  std::function<void(int64_t, int64_t)> progress_;
};

}  // namespace assay
