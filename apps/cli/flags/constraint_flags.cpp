// See constraint_flags.h.
#include "flags/constraint_flags.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "io/terminal.h"

namespace assay::cli {
namespace {

using Compile = std::shared_ptr<const Constraint> (*)(std::string_view);

// for_files: the flag that would read it, where the text is on the command line itself.
std::shared_ptr<const Constraint> compiled(const std::string& from, const std::string& text, Compile compile,
                                           const char* for_files = nullptr) {
  try {
    return compile(text);
  } catch (const Error& error) {
    std::error_code unknown;
    if (for_files != nullptr && std::filesystem::is_regular_file(text, unknown))
      throw UsageError(fmt::format("{} {}: is the name of a file, which {} {} reads", from, text, for_files, text));
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
  if (grammar) return compiled("--grammar", *grammar, Constraint::from_grammar, "--grammar-file");
  if (grammar_file) return compiled(*grammar_file, read_file(*grammar_file), Constraint::from_grammar);
  if (schema) return compiled("--json-schema", *schema, Constraint::from_schema, "-jf");
  if (schema_file) return compiled(*schema_file, read_file(*schema_file), Constraint::from_schema);
  return nullptr;
}

}  // namespace assay::cli
