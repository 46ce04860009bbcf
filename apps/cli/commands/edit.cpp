// assay edit: metadata and tensors' names of a model file.
#include "assay/edit.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "assay/error.h"
#include "commands.h"
#include "flags/flags.h"
#include "flags/options.h"
#include "io/file_progress.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

struct EditFlags {
  std::string in;
  std::vector<std::string> set, set_file, remove, rename;
  std::optional<std::string> chat_template, pre, out;
  std::optional<int64_t> eos;
  bool in_place = false, force = false, dry_run = false;

  void add(Flags& flags) {
    flags.positional("IN", in, "The file");
    flags.values("--set", set, "KEY=VALUE",
                 "A key that is there, in its own type; KEY=TYPE:VALUE for a new one: u32:7, i32:[1,2], str:x");
    flags.values("--set-file", set_file, "KEY=FILE", "A text from a file");
    flags.values("--remove", remove, "KEY", "A key that is there");
    flags.values("--rename-tensor", rename, "A=B", "Tensor A is called B");
    flags.value("--chat-template", chat_template, "FILE", "The chat template, from a file");
    flags.value("--pre", pre, "NAME", "The pre-tokenizer");
    flags.value("--eos-token", eos, "ID", "The token that ends an answer");
    flags.value("-o,--output", out, "OUT", "The file to write");
    flags.on("--in-place", in_place, "IN itself is changed");
    flags.on("--force", force, "Writes it even where it could not be loaded any more");
    flags.on("--dry-run", dry_run, "Shows what would change, writes nothing");
  }

  // Removals first, so that a key can be given another type in one go.
  std::vector<Edit> edits() const {
    std::vector<Edit> all;
    for (const std::string& key : remove) all.push_back({Edit::Kind::remove, key});
    for (const std::string& names : rename) all.push_back(parse_rename(names));
    for (const std::string& text : set) all.push_back(parse_set(text));
    for (const std::string& text : set_file) {
      const Edit parts = parse_rename(text);  // KEY=FILE
      all.push_back({Edit::Kind::set_text, parts.key, {}, read_file(parts.value)});
    }
    if (chat_template) all.push_back({Edit::Kind::set_text, "tokenizer.chat_template", {}, read_file(*chat_template)});
    if (pre) all.push_back({Edit::Kind::set_text, "tokenizer.ggml.pre", {}, *pre});
    if (eos) all.push_back({Edit::Kind::set_typed, "tokenizer.ggml.eos_token_id", "u32", fmt::to_string(*eos)});
    return all;
  }
};

std::string text_of(const EditResult& result) {
  std::string text;
  for (const EditChange& change : result.changes) {
    text += fmt::format("{}\n", change.what);
    text += fmt::format("  - {}\n", change.before.empty() ? "(not there)" : change.before);
    text += fmt::format("  + {}\n", change.after.empty() ? "(not there)" : change.after);
  }
  return text.empty() ? "nothing changes\n" : text;
}

}  // namespace

int edit_command(const Arguments& arguments) {
  Flags flags(
      "edit",
      "Changes metadata and tensors' names of a model file. The tensors' bytes stay as they are, which is checked.",
      "  assay edit in.gguf -o out.gguf --set general.name=\"My model\"\n"
      "  assay edit model.gguf --in-place --eos-token 107\n"
      "  assay edit in.gguf -o out.gguf --chat-template chat.jinja --remove general.url\n"
      "  assay edit in.gguf --dry-run --set general.tags='str:[\"chat\",\"small\"]'\n");
  EditFlags asked;
  asked.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (asked.in.empty()) throw UsageError("there is no file: assay edit IN -o OUT");
  if (!asked.dry_run && asked.out.has_value() == asked.in_place)
    throw UsageError("needs either -o OUT or --in-place, or --dry-run");
  EditOptions options;
  options.edits = asked.edits();
  if (options.edits.empty()) throw UsageError("there is nothing to change: --set, --remove, --rename-tensor, ..");
  options.out = asked.out.value_or("");
  options.force = asked.force;
  options.dry_run = asked.dry_run;
  FileWatch watch("edit");
  options.watch = watch.hooks();
  std::error_code unknown;
  if (asked.in_place && !std::filesystem::exists(asked.in, unknown)) {  // a name may mean another program's file
    throw Error(Errc::io, fmt::format("--in-place {}: there is no such file; needs a path, not a name", asked.in));
  }
  const EditResult result = edit_file(existing(asked.in), options);
  if (result.cancelled) return exit_code_of_signal(interrupted());
  Output().write(text_of(result));
  for (const std::string& finding : result.findings)
    notice(fmt::format("{}: with these changes: {}", asked.in, finding));
  return 0;
}

}  // namespace assay::cli
