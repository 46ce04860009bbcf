// The new file written: head, then tensor by tensor, rows encoded side by side.
#pragma once

#include <filesystem>

#include "assay/quantize.h"
#include "gguf/head.h"
#include "quantize/plan.h"

namespace assay::quantizing {

// One head for each file to be written: the source's metadata with what quantising changes, and the planned tensors.
std::vector<gguf::Head> heads_of(const gguf::File& file, const Plan& plan, const Weighing& weighing,
                                 const QuantizeOptions& options);

// Takes KEY=TYPE:VALUE, TYPE one of int, float, bool, str. Error(bad_request) for anything else.
void apply_override(gguf::Head& head, const std::string& text);

QuantizeResult run_job(const std::filesystem::path& in, const std::filesystem::path& out,
                       const QuantizeOptions& options);

}  // namespace assay::quantizing
