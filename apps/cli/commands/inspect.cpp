// assay inspect: what a file holds and the memory that running it takes.
#include "assay/inspect.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/utf8.h"
#include "commands.h"
#include "flags/options.h"
#include "io/terminal.h"

namespace assay::cli {

int inspect_command(const Arguments& arguments) {
  Flags flags("inspect",
              "Shows a file's metadata (and which keys nobody reads), its tensors, and the memory "
              "it takes at a context size.",
              "  assay inspect model.gguf\n"
              "  assay inspect model.gguf -c 32768 -ctk q8_0 -ctv q8_0     does it fit?\n"
              "  assay inspect model.gguf --lint              facts that contradict each other\n"
              "  assay inspect model.gguf --json | jq '.tensors[0]'\n");
  ModelFlag model;
  RuntimeFlags runtime;
  InspectOptions options;
  bool as_json = false;
  model.add(flags);
  flags.on("--json", as_json, "One JSON object");
  flags.on("--lint", options.lint, "What is wrong or unusual in the file, a line each; exit code 5 for what is wrong");
  flags.value("--array-items", options.array_items_max, "N", "Items of an array that are shown; 0: all").at_least(0);
  runtime.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const std::string path = model.path();
  options.context = runtime.options();
  const Inspection found = inspect(model.resolved(), options);
  Output().write(as_json ? found.to_json() : printable_lines(options.lint ? found.lint_text() : found.to_text()));
  const InspectProblem* first = nullptr;
  for (const InspectProblem& problem : found.problems) {
    if (options.lint && problem.part != "memory") continue;  // among the findings
    notice(fmt::format("{}: {}: {}", path, problem.part, problem.message));
    if (first == nullptr) first = &problem;
  }
  if (first != nullptr) return exit_code_of(first->code);
  const bool is_wrong = std::any_of(found.lint.begin(), found.lint.end(),
                                    [](const LintFinding& f) { return f.level == LintLevel::error; });
  return is_wrong ? kExitMismatch : 0;
}

}  // namespace assay::cli
