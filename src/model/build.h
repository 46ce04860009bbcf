// A file's Plan: hyper-parameters and tensors checked, the architecture's graph written out.
#pragma once

#include "gguf/file.h"
#include "model/hparams.h"
#include "ops/plan.h"

namespace assay::model {

struct BuiltModel {
  Hparams hparams;
  ops::Plan plan;  // its weights point into the file's map
};

// Error(unsupported) for an architecture that is not served, with those that are; Error(bad_file) where keys or tensors do not fit.
BuiltModel build_model(const gguf::File& file);

}  // namespace assay::model
