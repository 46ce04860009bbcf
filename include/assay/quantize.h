// GGUF files of float weights to files of quantised ones: which type each tensor gets, and the encoding
// (docs/quantize.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace assay {

enum class QuantizeEffort { fast, normal, best };

struct QuantizeOptions {
  std::string type;  // one of quantize_type_names(), in any case
  QuantizeEffort effort = QuantizeEffort::normal;
  int n_threads = 0;  // 0: one for each physical core. The file's bytes do not depend on it.

  // Types by tensor; all of them names of tensor types, in any case.
  std::optional<std::string> output_tensor_type, token_embedding_type;
  std::vector<std::pair<std::string, std::string>>
      tensor_types;                  // regular expression, type: the first that matches a name counts
  bool pure = false;                 // every tensor gets the type's own format
  bool leave_output_tensor = false;  // output.weight stays as it is
  bool allow_requantize = false;     // a source that is quantised already is taken

  // Weighs the errors of a weight's columns: a matrix of this model (docs/imatrix.md). The vectors name parts of names
  // of its entries: those alone count, or those do not.
  std::optional<std::filesystem::path> imatrix;
  std::vector<std::string> include_weights, exclude_weights;

  std::vector<std::string> override_kv;  // KEY=TYPE:VALUE, TYPE one of int, float, bool, str
  std::vector<int64_t> prune_layers;     // blocks that are left out; those behind them move up
  bool keep_split = false;               // as many files as the source has, cut at the same tensors
  bool resume = false;                   // go on where a killed process with the same source and options stopped

  // Of buffers; 0: 256 MiB. Beyond that each thread holds a row or two of the widest tensor.
  uint64_t memory_bytes_max = 0;

  std::function<bool()> cancelled = {};  // polled between rows
  // The tensor at work, its number and their count; bytes of the file written and in all.
  std::function<void(const std::string& tensor, int64_t i, int64_t n, uint64_t done, uint64_t total)> progress = {};
};

// What becomes of one tensor.
struct QuantizedTensor {
  std::string name;            // in the new file
  std::string source_name;     // the same unless blocks were left out
  std::vector<int64_t> shape;  // row-major
  std::string source_type, type;
  std::string wanted;         // where `type` is a fallback: the type whose block does not fit the columns; else empty
  bool needs_matrix = false;  // of no use without an importance matrix, and there is none for it
  bool is_weighted = false;   // encoded by the importance matrix
  std::vector<int64_t>
      experts_without_data;  // of the matrix's: no token came to them, all their columns count the same
  uint64_t n_elements = 0, source_bytes = 0, bytes = 0;
};

struct QuantizePlan {
  std::string type;                      // the mix
  std::vector<QuantizedTensor> tensors;  // in the order of the new file
  uint64_t n_elements = 0, source_bytes = 0, bytes = 0;
  bool has_matrix = false;
  std::optional<std::string>
      requantized;  // of a quantised source: what its file says it is, or its most frequent format
  int n_fallbacks() const noexcept;
  double bits_per_weight() const noexcept;
};

struct QuantizeResult {
  QuantizePlan plan;
  std::vector<std::filesystem::path> paths;  // what was written
  bool cancelled = false;                    // nothing was written
  int64_t n_resumed = 0;                     // tensors that were there already
  // With QuantizeEffort::best: root mean square error over all tensors beside that of QuantizeEffort::normal.
  std::optional<double> error_beside_normal;
};

// The names of mixes that QuantizeOptions::type takes.
std::vector<std::string> quantize_type_names();

// What quantize() would do; reads no weights. Error(bad_request) for an unknown type (all are listed) or tensor type, a
// regular expression that is none, an importance matrix of another model, and a quantised source without
// allow_requantize; those of opening a model and a matrix else.
QuantizePlan plan_quantize(const std::filesystem::path& in, const QuantizeOptions& options);

// Writes `out` (with keep_split: out less .gguf, then -00001-of-00003.gguf and so on). It appears whole or not at all;
// what was there before stays until then. Errors: plan_quantize()'s; Error(bad_request) where a file to write is one
// of `in` or the importance matrix, or a format needs one; Error(bad_file) for weights that are not finite, with tensor,
// place and value; Error(io).
QuantizeResult quantize(const std::filesystem::path& in, const std::filesystem::path& out,
                        const QuantizeOptions& options);

}  // namespace assay
