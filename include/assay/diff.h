// What differs between two model files: metadata, the values of each tensor, and what each tensor costs (docs/diff.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/edit.h"
#include "assay/model.h"

namespace assay {

struct MetadataDifference {
  std::string key;
  std::string before, after;       // "u32 7", long ones shortened; empty: it is not in that file
  std::vector<std::string> lines;  // of long texts and lists: "-" or "+", then the line, or the item with its index
};

struct TensorDifference {
  enum class Kind { only_a, only_b, shape, values };
  Kind kind = Kind::values;
  std::string name = {};
  std::string type_a = {}, type_b = {};             // "Q4_K"; empty where the file has no such tensor
  std::vector<int64_t> shape_a = {}, shape_b = {};  // row-major
  // Of `values`, over all elements as numbers: b - a, in double, in the order of the file.
  double rmse = 0;
  double relative_rmse = 0;         // rmse / the root mean square of a; infinite where a is all zeros
  double largest = 0;               // the largest |b - a|
  std::vector<int64_t> place = {};  // of that one: its index in each dimension
  double cosine = 1;                // of the angle between a and b; NaN where one is all zeros
  double changed = 0;               // share of the elements that differ
  int64_t n_not_finite =
      0;  // elements of either that are no finite number; those figures leave them out, but for `changed`
  // Of DiffOptions::kld: KL divergence of A with this one tensor of B from A, the mean over the scored tokens.
  std::optional<double> kld = {};
  bool kld_estimated = false;
  std::string kld_missing = {};  // why there is none
};

struct DiffOptions {
  bool kld = false;                         // measure what each tensor costs, and sort by that
  bool kld_estimate = false;                // the same, estimated (TensorEffectOptions::estimate)
  std::string kld_text = {};                // what the model runs over; empty: effect_text()
  int64_t n_chunk = 512, n_chunks_max = 1;  // of the text, as in TensorEffectOptions
  int n_threads = 0;
  std::string temporary_folder =
      "/var/tmp";  // where a folder of Hugging Face becomes a file for as long as the call takes
  FileProgress watch = {};
  std::function<void(int64_t done, int64_t total, std::string_view tensor)> kld_progress = {};
};

struct DiffResult {
  std::string a, b;  // the paths
  std::vector<MetadataDifference> metadata;
  std::vector<TensorDifference>
      tensors;  // those that differ: in one file only, of another shape, then by kld or relative_rmse, the worst first
  int64_t n_tensors_same = 0;      // of both files, with the same values; the types of these may differ
  std::vector<std::string> notes;  // what the user should know of folders that were read
  // Of DiffOptions::kld.
  bool has_kld = false;
  std::optional<double> kld_all;           // of A with all of B's values at once
  int64_t n_scored = 0, n_tokens_run = 0;  // tokens
  bool cancelled = false;

  bool differs() const noexcept { return !metadata.empty() || !tensors.empty(); }
  std::string to_text() const;  // for people; ends with a newline
  std::string to_json() const;  // one object; ends with a newline
};

// Either may be the first file of a split, or a folder of Hugging Face: that is converted first, with the types it has,
// into a file in DiffOptions::temporary_folder, which is gone when this returns. What says that a file is split is no
// difference. Throws as gguf files do that cannot be opened, as convert() for folders and as Model::load and
// tensor_effects() where DiffOptions::kld is asked for.
DiffResult diff_files(const std::string& a, const std::string& b, const DiffOptions& options = {});

// Rows of a tensor to be tried in the place of a model's own tensor of that name, which has the same shape.
struct TensorCandidate {
  std::string name;
  std::string type;                      // "Q4_K"
  std::span<const std::byte> data = {};  // as a file has it; must outlive the call
};

struct TensorEffectOptions {
  // Few runs in place of one for each candidate. Each layer is run with all its tensors' candidates at once to the end;
  // each single candidate to the end of its own layer only, and takes the share of that divergence which it has of the
  // squared change there (relative to each token's own square). That is what a change too small to bend anything
  // amounts to: docs/diff.md says how well it agrees. Tensors outside the layers, and in the last, are measured all the
  // same.
  bool estimate = false;
  int64_t n_chunk =
      512;  // tokens of a chunk: run from an empty context and scored on its second half, as perplexity() does
  int64_t n_chunks_max = 1;  // of the text, 0: all. A text shorter than one chunk is one.
  int n_threads = 0;         // 0: one for each physical core; changes no bit
  std::function<bool()> cancelled = {};
  std::function<void(int64_t done, int64_t total, std::string_view tensor)> progress = {};  // candidates
};

struct TensorEffect {
  std::optional<double>
      kl_divergence;  // of the model's distributions: sum p log(p / q), the mean over the scored tokens
  bool estimated = false;
  std::string why_none;  // "a type that cannot be run: ..": where there is none
};

struct TensorEffects {
  std::vector<TensorEffect> effects;  // one for each candidate
  TensorEffect all;                   // of the first candidates of all names at once
  int64_t n_scored = 0, n_tokens_run = 0;
  bool cancelled = false;  // effects are those measured so far
};

// What each candidate alone costs the model. Runs on the CPU with exact numerics. What lies before a candidate's layer
// is run once for all, so a candidate in the middle costs half a run. Takes the memory of the scored tokens' logits
// (n_chunk / 2 rows of the vocabulary a chunk). Error(bad_request) for names, shapes and types that the model has not,
// Error(unsupported) for models without logits.
TensorEffects tensor_effects(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids,
                             std::span<const TensorCandidate> candidates, const TensorEffectOptions& options = {});

// A text of our own, of prose, dialogue, figures and code: 512 tokens and more for any tokenizer.
std::string_view effect_text() noexcept;

}  // namespace assay
