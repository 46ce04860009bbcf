// --spec-type, -md and --spec-draft-n-max: guesses that make answers quicker and change none.
#pragma once

#include <optional>
#include <string>

#include "assay/generate.h"
#include "flags/flags.h"

namespace assay::cli {

struct DraftFlags {
  std::optional<std::string> kind, model;
  int64_t n_max = 16;

  void add(Flags& flags);
  DraftOptions options() const;  // the draft model loaded; UsageError where the flags do not fit together
};

}  // namespace assay::cli
