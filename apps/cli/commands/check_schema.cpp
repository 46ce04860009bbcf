// assay check-schema: what of a JSON Schema would be refused.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "assay/constraint.h"
#include "assay/utf8.h"
#include "commands.h"
#include "flags/flags.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {

namespace json = boost::json;

int check_schema_command(const Arguments& arguments) {
  Flags flags("check-schema",
              "Names every part of a JSON Schema that answers cannot be held to. Exit code 0: there is none; 1: there "
              "are some.",
              "  assay check-schema schema.json\n"
              "  assay check-schema schema.json --json | jq '.problems[].pointer'\n");
  std::string path;
  bool as_json = false;
  flags.positional("FILE", path, "The schema; - is standard input");
  flags.on("--json", as_json, "Prints {\"problems\": [{\"pointer\", \"message\"}]}");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (path.empty()) throw UsageError("needs a file: assay check-schema FILE");
  const std::vector<SchemaProblem> problems = check_schema(read_input(path));
  Output out;
  if (as_json) {
    json::array list;
    for (const SchemaProblem& p : problems) list.push_back({{"pointer", p.pointer}, {"message", p.message}});
    out.write(to_text(json::object{{"problems", std::move(list)}}) + "\n");
  } else {
    for (const SchemaProblem& p : problems)
      out.write(printable(fmt::format("{}: {}", p.pointer.empty() ? "(the schema)" : p.pointer, p.message)) + "\n");
    if (problems.empty()) out.write("answers can be held to it\n");
  }
  return problems.empty() ? 0 : 1;
}

}  // namespace assay::cli
