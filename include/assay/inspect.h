// What a GGUF file holds and what running it takes: the facts behind `assay inspect`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "assay/context.h"
#include "assay/error.h"

namespace assay {

struct InspectOptions {
  ContextOptions context;       // what the memory plan is made for
  bool lint = false;            // looks for facts that contradict each other
  int64_t array_items_max = 8;  // of an array, shown in text and JSON; 0: all
};

// A sentence with both numbers where a context of n_ctx positions is longer than the model was trained for, with the
// file's YaRN keys where it has them; else empty.
std::string beyond_training(const Model& model, int64_t n_ctx);

struct MetadataFact {
  std::string key;    // as UTF-8, broken bytes replaced
  std::string type;   // "u32", "string", "array of f32"; a nested array: "array of array"
  int64_t count = 1;  // elements of an array, else 1
  std::string json;   // the value as JSON; an array's first items; what JSON has no number for (nan, inf) as a string
  bool shortened = false;
  bool read = false;  // somebody used it to load the model, its tokenizer or its template
};

struct TensorFact {
  std::string name;
  std::string type;            // "Q4_K"
  std::vector<int64_t> shape;  // row-major: the last dimension is contiguous
  int shard = 0;
  int64_t offset = 0;  // from the start of its file
  int64_t bytes = 0;
};

// What the Context takes of a GPU's memory: weights, cache and activations of the layers that it runs.
struct DeviceMemory {
  int device = 0;  // its number, as --device has it
  std::string name;
  int64_t used_bytes = 0;
  int64_t available_bytes = 0;  // before
};

// Bytes that a Context with these options takes: asked from a Context made for it, whose memory is not touched.
struct MemoryPlan {
  ContextOptions options;  // with every 0 replaced by what it stands for
  MemoryFigures figures;
  int64_t available_bytes =
      0;  // that the machine could give now; the weights' pages count as given where they are already in memory
  std::vector<DeviceMemory> devices =
      {};  // the GPUs that it runs on; where one has too little, that is a problem in place of a plan
  int64_t total_bytes() const noexcept { return figures.weights_bytes + figures.cache_bytes + figures.arena_bytes; }
  std::string beyond_training =
      {};  // a sentence where the context is longer than the model was trained for, else empty
  bool fits() const noexcept { return total_bytes() <= available_bytes; }
};

// Why a part of the file cannot be used.
struct InspectProblem {
  std::string part;  // "model", "tokenizer", "chat template", "memory"
  Errc code = Errc::bad_file;
  std::string message;
};

// Something about the file that contradicts itself (error) or that no known model has (warning), by the name of its
// rule.
enum class LintLevel { warning, error };
struct LintFinding {
  std::string rule;  // "pre_tokenizer", "end_of_turn", ...
  LintLevel level = LintLevel::warning;
  std::string message;
};

struct Inspection {
  std::string path;
  int version = 0;
  int64_t alignment = 0;
  int64_t file_bytes = 0;  // of all shards
  int n_shards = 1;
  std::string name;
  std::string architecture;      // empty where the file has none
  std::string weights_type;      // empty where the model was not loaded
  int64_t n_parameters = 0;      // elements of all tensors
  bool vocabulary_only = false;  // no tensor at all
  std::vector<MetadataFact> metadata;
  std::vector<TensorFact> tensors;
  std::vector<MemoryPlan> memory;        // one, or none where the model cannot be loaded
  std::vector<InspectProblem> problems;  // none for a file that can be served
  bool linted = false;
  std::vector<LintFinding> lint;

  int64_t n_unread() const noexcept;
  std::string to_text() const;    // for people; ends with a newline
  std::string to_json() const;    // one object; ends with a newline
  std::string lint_text() const;  // the findings alone, a line each; ends with a newline
};

// Loads the model, its tokenizer and its template, so that the keys they read are marked. Throws only where the file is
// no GGUF file that can be parsed (Error(io, bad_file, unsupported)); what fails after that is among the problems.
Inspection inspect(const std::string& path, const InspectOptions& options = {});

}  // namespace assay
