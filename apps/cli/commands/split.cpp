// assay split, assay merge: a model in several files, and in one again.
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "assay/edit.h"
#include "commands.h"
#include "flags/flags.h"
#include "flags/options.h"
#include "io/file_progress.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

// "2G", "300M": powers of ten, as llama-gguf-split has them.
int64_t parse_size(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const int64_t scale = unit == "G"    ? 1'000'000'000
                        : unit == "M"  ? 1'000'000
                        : unit == "K"  ? 1000
                        : unit.empty() ? 1
                                       : 0;
  int64_t bytes = 0;
  if (error != std::errc() || n < 1 || scale == 0 || __builtin_mul_overflow(n, scale, &bytes))
    throw UsageError(fmt::format("--max-size {}: needs a size such as 2G, 300M or 4096", text));
  return bytes;
}

std::string text_of(const SplitResult& result) {
  std::string text;
  for (const SplitFile& file : result.files)
    text += fmt::format("{}  {} tensors  {} bytes\n", file.path, file.n_tensors, file.bytes);
  return text;
}

}  // namespace

int split_command(const Arguments& arguments) {
  Flags flags("split",
              "Cuts a model file into several, PREFIX-00001-of-0000N.gguf. Any of our commands, and llama.cpp, take "
              "the first as the whole model.",
              "  assay split model.gguf parts/model --max-size 2G\n"
              "  assay split model.gguf model --max-tensors 128 --dry-run\n");
  std::string in, prefix;
  std::optional<std::string> size;
  std::optional<int64_t> n_tensors;
  SplitOptions options;
  flags.positional("IN", in, "The file");
  flags.positional("PREFIX", prefix, "What the names of the files begin with");
  flags.value("--max-size,--split-max-size", size, "N(K|M|G)", "Bytes of the tensors in one file: 2G is 2,000,000,000");
  flags.value("--max-tensors,--split-max-tensors", n_tensors, "N", "Tensors in one file");
  flags.on("--dry-run", options.dry_run, "Shows the files, writes nothing");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (in.empty() || prefix.empty()) throw UsageError("needs two names: assay split IN PREFIX");
  if (size.has_value() == n_tensors.has_value()) throw UsageError("needs either --max-size or --max-tensors");
  if (n_tensors && *n_tensors < 1) throw UsageError("--max-tensors needs at least 1");
  if (size) options.bytes_max = parse_size(*size);
  options.n_tensors_max = n_tensors.value_or(0);
  FileWatch watch("split");
  options.watch = watch.hooks();
  const SplitResult result = split_file(existing(in), prefix, options);
  if (result.cancelled) return exit_code_of_signal(interrupted());
  Output().write(text_of(result));
  return 0;
}

int merge_command(const Arguments& arguments) {
  Flags flags("merge", "Makes one file of the files of a split model.",
              "  assay merge parts/model-00001-of-00003.gguf model.gguf\n");
  std::string first, out;
  flags.positional("FIRST", first, "The first of the files");
  flags.positional("OUT", out, "The file to write");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (first.empty() || out.empty()) throw UsageError("needs two names: assay merge FIRST OUT");
  FileWatch watch("merge");
  const SplitResult result = merge_files(existing(first), out, watch.hooks());
  if (result.cancelled) return exit_code_of_signal(interrupted());
  Output().write(text_of(result));
  return 0;
}

}  // namespace assay::cli
