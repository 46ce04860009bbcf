// GGUF files of float weights to files of quantised ones: which type each tensor gets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace assay {

struct QuantizeOptions {
  std::string type;  // one of quantize_type_names(), in any case

  // Types by tensor; all of them names of tensor types, in any case.
  std::optional<std::string> output_tensor_type, token_embedding_type;
  std::vector<std::pair<std::string, std::string>> tensor_types;  // regular expression, type: the first that matches a name counts
  bool pure = false;                 // every tensor gets the type's own format
  bool leave_output_tensor = false;  // output.weight stays as it is
  bool allow_requantize = false;     // a source that is quantised already is taken

  std::vector<int64_t> prune_layers;     // blocks that are left out; those behind them move up
  bool keep_split = false;               // as many files as the source has, cut at the same tensors
};

// What becomes of one tensor.
struct QuantizedTensor {
  std::string name;         // in the new file
  std::string source_name;  // the same unless blocks were left out
  std::vector<int64_t> shape;  // row-major
  std::string source_type, type;
  std::string wanted;          // where `type` is a fallback: the type whose block does not fit the columns; else empty
  bool needs_matrix = false;   // of no use without an importance matrix
  uint64_t n_elements = 0, source_bytes = 0, bytes = 0;
};

struct QuantizePlan {
  std::string type;                        // the mix
  std::vector<QuantizedTensor> tensors;    // in the order of the new file
  uint64_t n_elements = 0, source_bytes = 0, bytes = 0;
  std::optional<std::string> requantized;  // of a quantised source: what its file says it is, or its most frequent format
  int n_fallbacks() const noexcept;
  double bits_per_weight() const noexcept;
};

std::vector<std::string> quantize_type_names();

// What quantising would do; reads no weights. Error(bad_request) for an unknown type (all are listed) or tensor type, a regular expression that
// is none, and a quantised source without allow_requantize; those of opening a model else.
QuantizePlan plan_quantize(const std::filesystem::path& in, const QuantizeOptions& options);

}  // namespace assay
