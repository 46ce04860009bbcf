// A file's Plan: hyper-parameters and tensors checked, the architecture's graph written out.
#pragma once

#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "model/hparams.h"
#include "ops/plan/plan.h"

namespace assay::model {

struct BuiltModel {
  Hparams hparams;
  ops::Plan plan;  // its weights point into the file's map
  std::vector<tensor::TensorView>
      dense;  // matrices that follow the pooling of embeddings, in order; they point there too
};

// Error(unsupported) for an architecture that is not served, with those that are; Error(bad_file) where keys or tensors
// do not fit.
BuiltModel build_model(const gguf::File& file);
bool is_served(std::string_view architecture) noexcept;

}  // namespace assay::model
