// Flags of what a model thinks before it answers, and of the template's further variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "assay/reasoning.h"
#include "flags/flags.h"

namespace assay::cli {

struct ReasoningFlags {
  std::string format = "auto";
  int64_t n_max = -1;
  std::optional<std::string> variables_json;

  void add(Flags& flags);
  // The template's variables as a JSON object; empty: none. UsageError for anything else.
  std::string variables() const;
  // template_text: as given in place of the model's own; empty: none. No marks where the answer is one text.
  ReasoningOptions options(const Model& model, std::string_view template_text, bool raw) const;
};

}  // namespace assay::cli
