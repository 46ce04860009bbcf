// assay diff: what differs between two model files.
#include "assay/diff.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "assay/convert.h"
#include "commands.h"
#include "flags/flags.h"
#include "flags/options.h"
#include "io/file_progress.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

struct DiffFlags {
  std::string a, b;
  bool as_json = false, tells = false, kld = false, estimate = false;
  std::optional<std::string> file;
  std::optional<int64_t> n_tokens, n_chunks, n_threads;

  void add(Flags& flags) {
    flags.positional("A", a, "The one file, or a folder of Hugging Face");
    flags.positional("B", b, "The other");
    flags.on("--kld", kld,
             "Ranks the tensors by what each costs: A is run over a text with one tensor of B put into it, and the KL "
             "divergence from A measured");
    flags.on("--estimate", estimate, "With --kld: estimates it in a fraction of the time, layer by layer");
    flags.value("-f,--file", file, "TEXT", "With --kld: the text (- is standard input); without it a built-in one");
    flags.value("-c,--ctx-size", n_tokens, "N", "With --kld: tokens of a chunk (512), scored on the second half")
        .at_least(8);
    flags.value("--chunks", n_chunks, "N", "With --kld: the first N chunks of the text (1); -1: all").at_least(-1);
    flags.value("-t,--threads", n_threads, "N", "With --kld: threads; 0 is one for each physical core").at_least(0);
    flags.on("--json", as_json, "One JSON object");
    flags.on("--exit-code", tells, "Exit code 1 where they differ");
  }
  void check() const {
    if (a.empty() || b.empty()) throw UsageError("needs two names: assay diff A B");
    const char* needs_kld = estimate    ? "--estimate"
                            : file      ? "-f"
                            : n_tokens  ? "-c"
                            : n_chunks  ? "--chunks"
                            : n_threads ? "-t"
                                        : nullptr;
    if (!kld && needs_kld != nullptr) throw UsageError(fmt::format("{}: is of use with --kld only", needs_kld));
    if (n_chunks && *n_chunks == 0) throw UsageError("--chunks 0: needs 1 or more, or -1 for all");
  }
};

std::string source(const std::string& path) { return is_model_folder(path) ? path : existing(path); }

}  // namespace

int diff_command(const Arguments& arguments) {
  Flags flags("diff", "Compares two model files: metadata, and the values of every tensor, the most different first.",
              "  assay diff original.gguf edited.gguf\n"
              "  assay diff model-F16.gguf model-Q4_K_M.gguf --json | jq '.tensors[0]'\n"
              "  assay diff model-F16.gguf model-Q4_K_M.gguf --kld\n"
              "  assay diff hugging-face-folder model-Q4_K_M.gguf --kld --estimate -f text.txt\n");
  DiffFlags asked;
  asked.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  asked.check();
  FileWatch watch("diff");
  FileWatch tensors("diff --kld", "tensors", 1);
  DiffOptions options;
  if (const char* folder = std::getenv("TMPDIR"); folder != nullptr && *folder != 0) options.temporary_folder = folder;
  options.watch = watch.hooks();
  options.kld = asked.kld;
  options.kld_estimate = asked.estimate;
  if (asked.file) options.kld_text = prompt_from_file(*asked.file);
  options.n_chunk = asked.n_tokens.value_or(options.n_chunk);
  if (asked.n_chunks) options.n_chunks_max = *asked.n_chunks < 0 ? 0 : *asked.n_chunks;
  options.n_threads = static_cast<int>(asked.n_threads.value_or(0));
  options.kld_progress = tensors.hooks().progress;
  const DiffResult found = diff_files(source(asked.a), source(asked.b), options);
  for (const std::string& note : found.notes) notice(note);
  if (found.cancelled) return exit_code_of_signal(interrupted());
  Output().write(asked.as_json ? found.to_json() : found.to_text());
  return asked.tells && found.differs() ? 1 : 0;
}

}  // namespace assay::cli
