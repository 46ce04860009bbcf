// Models by name: the folders where this program and others keep GGUF files, what lies in them, and which of it a name
// means. Stores of other programs are read in place and never written.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

enum class StoreKind { assay, hugging_face, ollama, lm_studio };
std::string_view name(StoreKind kind) noexcept;  // "assay", "huggingface", "ollama", "lmstudio"

// The variables that say where stores are, by their names; empty: not set. The library reads no environment itself.
struct StoreEnvironment {
  std::string home, xdg_cache_home, assay_models, hf_hub_cache, hf_home, ollama_models;
};
// By what `variable` says of each by its name, e.g. "HF_HOME"; null: not set.
StoreEnvironment store_environment(const std::function<const char*(const char* name)>& variable);

struct StoreFolder {
  StoreKind kind = StoreKind::assay;
  std::string path;
};

// Where each store would be by that environment, ours first, whether it is there or not. LM Studio has two.
std::vector<StoreFolder> store_folders(const StoreEnvironment& environment);

struct StoredModel {
  // The file's stem in ours and LM Studio's (of a split model without its part's number), user/repo:QUANT in Hugging
  // Face's, name:tag in Ollama's. Text from outside: control characters are possible.
  std::string name;
  std::vector<std::string>
      other_names;  // that mean it as well: name for name:latest, user/repo:QUANT of what was pulled from there
  StoreKind store = StoreKind::assay;
  std::vector<std::string> parts;  // paths of the files, the first one first; never empty
  int64_t n_parts = 1;             // that there should be
  int64_t bytes = 0;               // of the parts that are there
  std::string problem;  // why it cannot be run, e.g. a part that is missing; empty where nothing speaks against it
  const std::string& path() const noexcept { return parts.front(); }
};

// What the header of a model's file says. Reads no weights.
struct ModelFacts {
  std::string title;         // general.name; empty where the file has none
  std::string architecture;  // the same
  std::string weights_type;  // the type that most elements of its tensors have, e.g. "Q4_K"
  int64_t n_parameters = 0;
  int64_t n_ctx_train = 0;     // 0: the file does not say
  int64_t template_bytes = 0;  // of its chat template
  std::string problem;         // why the header could not be read; then all else is empty
};
ModelFacts read_facts(const StoredModel& model);

// Where a file came from, as `assay pull` noted it; digests of other programs' stores are in the names of their files.
struct ModelOrigin {
  std::string sha256;             // 64 hexadecimal digits; empty where nobody noted it
  std::string url;                // empty where nobody noted it
  std::string repository, quant;  // of a file from Hugging Face
  std::string time;               // when it was fetched: 2026-11-23T21:05:00Z
  std::string server_tag;         // the server's ETag or date of the file
};
// Of the first part, or of part i_part. Nothing where the file has changed since.
std::optional<ModelOrigin> find_origin(const StoredModel& model, size_t i_part = 0);

struct StoreListing {
  std::vector<StoredModel> models;    // by store, then by name
  std::vector<std::string> problems;  // folders that could not be read, and why
};
// Any number of threads at a time: it holds the folders' names alone.
class ModelStores {  // any number of threads at a time
 public:
  explicit ModelStores(std::vector<StoreFolder> folders);

  const std::vector<StoreFolder>& folders() const noexcept { return folders_; }
  const std::string& own_folder() const;  // where pulled models go

  // Reads names and sizes only.
  StoreListing list() const;

  // The model that a name means: a name itself (in ours before others), else the one model whose name begins so,
  // letters' case aside. Error(bad_request) with the candidates where several are meant, Error(io) with the nearest
  // names where none is.
  StoredModel find(const std::string& name) const;

  // What a command's MODEL means: a path where something other than a folder is there, else find()'s first part.
  // Error(io) where parts are missing, Error(unsupported) where the store asks for more than the file.
  std::string resolve(const std::string& path_or_name) const;

  // Of our store alone: the files of the model with exactly this name, what was noted of it, and what an interrupted
  // pull left of it. removable() are their paths; Error(io) where there is nothing of that name, Error(bad_request)
  // where it is in another program's store.
  std::vector<std::string> removable(const std::string& name) const;
  void remove(const std::string& name) const;

 private:
  std::vector<StoreFolder> folders_;
};

// The SHA-256 of a file, in hexadecimal. Error(io) where it cannot be read.
std::string sha256_of_file(const std::string& path);

// A short name of the table behind `assay pull`.
struct ShortName {
  std::string_view name, repository, what;
};
const std::vector<ShortName>& short_names();

}  // namespace assay
