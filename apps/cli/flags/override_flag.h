// --override-kv: of commands that run a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "assay/model.h"
#include "flags/flags.h"

namespace assay::cli {

struct OverrideFlag {
  std::vector<std::string> texts;

  void add(Flags& flags);
  static void say(const std::string& change);
  // Loads it with them, and says what they changed.
  std::shared_ptr<const Model> load(const std::string& file, const LoadOptions& options = {}) const;
};

}  // namespace assay::cli
