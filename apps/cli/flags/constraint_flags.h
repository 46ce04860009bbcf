// Flags that hold answers to a grammar or a schema, by llama.cpp's names.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "assay/constraint.h"
#include "flags/flags.h"

namespace assay::cli {

struct ConstraintFlags {
  std::optional<std::string> grammar, grammar_file, schema, schema_file;

  void add(Flags& flags);
  // Null where none was asked for; Error that names the flag or the file.
  std::shared_ptr<const Constraint> constraint() const;
};

}  // namespace assay::cli
