// From a file and what the user wants to what every tensor becomes: names after pruning, order, types.
#pragma once

#include <string>
#include <vector>

#include "assay/quantize.h"
#include "gguf/file.h"
#include "quantize/recipe.h"
#include "quantize/weighing.h"

namespace assay::quantizing {

struct PlannedTensor {
  const gguf::Tensor* source = nullptr;  // in the File, which must outlive this
  std::string name;                      // in the new file
  Choice choice;
};

struct Plan {
  const Mix* mix = nullptr;
  ModelFacts facts;
  int64_t n_layers = 0;                // of the new file
  std::vector<PlannedTensor> tensors;  // in the order of the new file
  std::optional<std::string> requantized;
};

// Errors as plan_quantize().
Plan make_plan(const gguf::File& file, const QuantizeOptions& options, bool has_matrix);
QuantizePlan public_plan(const Plan& plan, const Weighing& weighing);

}  // namespace assay::quantizing
