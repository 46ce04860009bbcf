// The value of --effort, of commands that write quantised types.
#pragma once

#include <fmt/format.h>

#include <string>

#include "assay/quantize.h"
#include "flags/flags.h"

namespace assay::cli {

inline QuantizeEffort effort_of(const std::string& level) {
  if (level == "fast") return QuantizeEffort::fast;
  if (level == "best") return QuantizeEffort::best;
  if (level != "normal") throw UsageError(fmt::format("--effort {}: needs fast, normal or best", level));
  return QuantizeEffort::normal;
}

}  // namespace assay::cli
