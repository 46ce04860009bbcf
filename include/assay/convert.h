// Folders of Hugging Face (safetensors, config.json, tokenizer) to GGUF files, and GGUF files held against such folders
// (docs/convert.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "assay/quantize.h"

namespace assay {

struct ConvertOptions {
  std::string outtype =
      "auto";  // auto (as the first matrix that is BF16 or F16, else F16), or one of quantize_type_names(); in any case
  std::optional<std::string> pre_tokenizer;  // its name, whatever tokenizer.json says
  bool text_only = false;                    // of a model that also sees or hears, its text model
  bool keep_nonfinite = false;               // NaN and infinity are written as they are; for F32, F16 and BF16
  bool check = true;                         // the written file's tokenizer is held against tokenizer.json
  QuantizeEffort effort = QuantizeEffort::normal;
  int n_threads = 0;  // 0: one for each physical core. The file's bytes do not depend on it.
  std::function<bool()> cancelled = {};
  // The tensor at work, its number and their count; bytes of the file written and in all.
  std::function<void(const std::string& tensor, int64_t i, int64_t n, uint64_t done, uint64_t total)> progress = {};
};

struct ConvertResult {
  std::filesystem::path path;
  std::string architecture, type;  // general.architecture; the type of most matrices
  int64_t n_tensors = 0;
  uint64_t bytes = 0;
  int64_t n_texts_checked =
      0;  // that the file's tokenizer and tokenizer.json cut alike; 0: not held against each other
  std::vector<std::string>
      notes;  // what the user should know: keys without a place in the file, defaults taken, links followed
  bool cancelled = false;  // nothing was written
};

// The classes of config.json's "architectures" that convert() knows.
std::vector<std::string> convertible_architectures();
// Whether a path is a folder with a config.json.
bool is_model_folder(const std::filesystem::path& path);

// Writes `out`. It appears whole or not at all; what was there before stays until then. Error(unsupported) for an
// architecture, pre-tokenizer, tensor or value of config.json that is not known, naming it; Error(bad_file) for a
// folder that contradicts itself, and for weights that are not finite or that the type cannot hold, with tensor, place
// and value; Error(bad_request) for an unknown type or pre-tokenizer, and where `out` is a file of the folder that is no
// GGUF file; Error(io).
ConvertResult convert(const std::filesystem::path& folder, const std::filesystem::path& out,
                      const ConvertOptions& options);

// One tensor of a file that is not what the folder has.
struct FolderDifference {
  std::string tensor, type;  // of the file; of a missing one the name it should have
  std::string problem;       // how much differs, and where first
  std::string cause;  // why, where it is known: rows not re-ordered, a norm without its 1, another tensor's values;
                      // empty: not known
};

struct FolderReport {
  std::string architecture;  // that the folder's files get
  int64_t n_tensors = 0;     // of the file
  int64_t n_equal = 0;       // bit for bit, after the type's own rounding
  int64_t n_near = 0;        // of block formats: as near as the format's encoder comes
  double worst_ratio = 0;    // of the near ones: the largest error over that of the encoder
  std::string worst_tensor;
  std::vector<FolderDifference> differences;
  std::string overall;  // where one cause explains all: another model's file; empty: none does
  std::vector<std::string> notes;
  bool cancelled = false;

  bool passed() const noexcept { return !cancelled && differences.empty(); }
};

struct FolderReportOptions {
  int n_threads = 0;
  std::function<bool()> cancelled = {};
  std::function<void(const std::string& tensor, int64_t i, int64_t n)> progress = {};
};

// A GGUF file held against the folder that it was made of: every tensor decoded, the family's transforms done to the
// folder's. Error as convert() for a folder that cannot be read, and as Model::load for the file.
FolderReport hold_against_folder(const std::filesystem::path& file, const std::filesystem::path& folder,
                                 const FolderReportOptions& options = {});

}  // namespace assay
