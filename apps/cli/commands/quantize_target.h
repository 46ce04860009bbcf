// assay quantize --target-size, --target-bpw: types chosen by what they cost.
#pragma once

#include <optional>
#include <string>

#include "assay/quantize.h"
#include "flags/flags.h"

namespace assay::cli {

struct TargetFlags {
  std::optional<std::string> size, bits, text;

  void add(Flags& flags);
  bool is_asked() const noexcept { return size || bits; }
};

// Measures, prints the choice as a --tensor-type-file on standard output, and puts it into the options. False: it was
// interrupted.
bool choose_by_target(const std::string& in, const TargetFlags& asked, QuantizeOptions& options);

}  // namespace assay::cli
