// Types by tensor for a file of a given size, chosen by what each costs: the divergence from the original that a short
// text shows (docs/quantize.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "assay/quantize.h"
#include "assay/tokenizer.h"

namespace assay {

struct TargetOptions {
  uint64_t bytes_max = 0;      // of the whole file
  double bits_per_weight = 0;  // where bytes_max is 0: of all tensors' bytes
  // What quantize() is to be given besides the types: imatrix, effort, threads, and types that are fixed (tensor_types,
  // output_tensor_type, token_embedding_type). Its type is taken for tensors that a run does not read; empty: Q4_K_M.
  QuantizeOptions quantize;
  int64_t n_tokens_max = 256;  // of the text, from its beginning
  std::function<bool()> cancelled = {};
  std::function<void(const std::string& tensor, int64_t done, int64_t total)> progress = {};
};

struct TargetTensor {
  std::string name, type;
  double kl_divergence = 0;  // what this tensor in this type costs, alone; estimated from one that was measured
  uint64_t bytes = 0;
};

struct TargetChoice {
  std::vector<TargetTensor> tensors;  // those that had a choice
  std::string type;                   // the mix whose own format most bytes have: TYPE of quantize()
  uint64_t bytes = 0;                 // of the file, at most
  double bits_per_weight = 0;
  double kl_divergence = 0;  // the sum over the tensors
  bool cancelled = false;

  // REGEX=TYPE for QuantizeOptions::tensor_types: with `type` they give these tensors these types.
  std::vector<std::pair<std::string, std::string>> rules() const;
};

// Error(bad_request) where the text is shorter than 16 tokens, neither or both sizes are given, or no choice of types
// is small enough, with the smallest there is; those of plan_quantize() and Model::load() else.
TargetChoice choose_types(const std::filesystem::path& in, std::span<const TokenId> ids, const TargetOptions& options);

}  // namespace assay
