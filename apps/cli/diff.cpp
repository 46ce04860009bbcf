// assay diff: what differs between two model files.
#include "assay/diff.h"

#include <string>

#include "commands.h"
#include "file_progress.h"
#include "flags.h"
#include "options.h"
#include "terminal.h"

namespace assay::cli {

int diff_command(const Arguments& arguments) {
  Flags flags("diff", "Compares two model files: metadata, and the values of every tensor, the most different first.",
              "  assay diff original.gguf edited.gguf\n"
              "  assay diff model-F16.gguf model-Q4_K_M.gguf --json | jq '.tensors[0]'\n");
  std::string a, b;
  bool as_json = false, tells = false;
  flags.positional("A", a, "The one file");
  flags.positional("B", b, "The other");
  flags.on("--json", as_json, "One JSON object");
  flags.on("--exit-code", tells, "Exit code 1 where they differ");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (a.empty() || b.empty()) throw UsageError("needs two names: assay diff A B");
  FileWatch watch("diff");
  const DiffResult found = diff_files(existing(a), existing(b), watch.hooks());
  if (found.cancelled) return exit_code_of_signal(interrupted());
  Output().write(as_json ? found.to_json() : found.to_text());
  return tells && found.differs() ? 1 : 0;
}

}  // namespace assay::cli
