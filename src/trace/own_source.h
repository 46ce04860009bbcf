// How our own engine names itself and declares its rounding, as a source of values beside others.
#pragma once

#include <string>
#include <string_view>

#include "assay/context.h"
#include "trace/dump.h"

namespace assay::trace {

// options: as Context::options() gives them.
Declared own_declared(const ContextOptions& options);

// "cpu avx512, exact, 15 bits, cache f16", "oracle, float64"
std::string own_name(const ContextOptions& options, std::string_view kernels);

}  // namespace assay::trace
