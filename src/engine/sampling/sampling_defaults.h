// What a model's file says about sampling.
#pragma once

#include "assay/sampler.h"
#include "gguf/metadata.h"

namespace assay::engine {

// The defaults with the file's general.sampling.* put over them. Error(unsupported) for a step or
// an order that we do not have, Error(bad_file) for a value out of its range.
SamplerOptions default_sampling(const gguf::Metadata& metadata);

}  // namespace assay::engine
