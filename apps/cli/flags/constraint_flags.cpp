// See constraint_flags.h.
#include "flags/constraint_flags.h"

#include <fmt/format.h>

#include "io/terminal.h"

namespace assay::cli {
namespace {

using Compile = std::shared_ptr<const Constraint> (*)(std::string_view);

std::shared_ptr<const Constraint> compiled(const std::string& from, const std::string& text, Compile compile) {
  try {
    return compile(text);
  } catch (const Error& error) {
    throw Error(error.code, fmt::format("{}: {}", from, error.what()));
  }
}

}  // namespace

void ConstraintFlags::add(Flags& flags) {
  flags.value("--grammar", grammar, "GBNF", "Holds the answer to a grammar, e.g. 'root ::= \"yes\" | \"no\"'");
  flags.value("--grammar-file", grammar_file, "FILE", "The same from a file");
  flags.value("-j,--json-schema", schema, "JSON", "Holds the answer to a JSON Schema; {} is any value");
  flags.value("-jf,--json-schema-file", schema_file, "FILE", "The same from a file");
  flags.exclusive({"--grammar", "--grammar-file", "-j", "-jf"});
}

std::shared_ptr<const Constraint> ConstraintFlags::constraint() const {
  if (grammar) return compiled("--grammar", *grammar, Constraint::from_grammar);
  if (grammar_file) return compiled(*grammar_file, read_file(*grammar_file), Constraint::from_grammar);
  if (schema) return compiled("--json-schema", *schema, Constraint::from_schema);
  if (schema_file) return compiled(*schema_file, read_file(*schema_file), Constraint::from_schema);
  return nullptr;
}

}  // namespace assay::cli
