// assay convert: a folder of Hugging Face to a GGUF file.
#include "assay/convert.h"

#include <fmt/format.h>

#include "commands.h"
#include "flags/effort_flag.h"
#include "flags/file_threads_flag.h"
#include "flags/options.h"
#include "io/check_written.h"
#include "io/file_progress.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

struct ConvertFlags {
  std::string folder, out, outtype = "auto", effort = "normal";
  std::optional<std::string> pre;
  int64_t n_threads = 0;
  bool text_only = false, keep_nonfinite = false, no_check = false;

  void add(Flags& flags) {
    flags.positional("HF_FOLDER", folder, "Folder with config.json, safetensors and tokenizer");
    flags.positional("OUT", out, "The new file");
    flags.value("--outtype", outtype, "TYPE",
                "auto (as the folder's matrices), f32, f16, bf16, or a type of assay quantize");
    flags.value("--pre", pre, "NAME", "The pre-tokenizer, where tokenizer.json has one that is not known");
    flags.on("--text-only", text_only, "Of a model that also sees or hears, its text model");
    flags.on("--keep-nonfinite", keep_nonfinite, "Writes NaN and infinity as they are (f32, f16, bf16)");
    flags.on("--no-check", no_check,
             "Leaves out holding the new file's tokenizer against tokenizer.json, and verify's stages of the file");
    flags.value("--effort", effort, "LEVEL", "Of a quantised type: fast, normal or best");
    add_file_threads(flags, n_threads);
  }

  ConvertOptions options() const {
    ConvertOptions o;
    o.outtype = outtype;
    o.pre_tokenizer = pre;
    o.text_only = text_only;
    o.keep_nonfinite = keep_nonfinite;
    o.check = !no_check;
    o.effort = effort_of(effort);
    o.n_threads = static_cast<int>(n_threads);
    o.cancelled = [] { return interrupted() != 0; };
    return o;
  }
};

std::string known_classes() {
  std::string text = "Classes of config.json's \"architectures\":\n ";
  for (const std::string& name : convertible_architectures()) text += " " + name;
  return text + "\n";
}

}  // namespace

int convert_command(const Arguments& arguments) {
  Flags flags("convert",
              "Writes a model of Hugging Face, safetensors and tokenizer, as one GGUF file. What the folder has and "
              "the file cannot say is printed, or refused.",
              "  assay convert Qwen2.5-0.5B-Instruct qwen.gguf\n"
              "  assay convert Llama-3.2-1B llama-Q4_K_M.gguf --outtype Q4_K_M\n"
              "  assay verify qwen.gguf --against Qwen2.5-0.5B-Instruct    every tensor against the folder's\n");
  ConvertFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help() + "\n" + known_classes());
    return 0;
  }
  if (f.folder.empty() || f.out.empty()) throw UsageError("needs HF_FOLDER and OUT");
  ConvertOptions options = f.options();
  FileWatch watch("converting");
  options.progress = watch.tensor_hook();
  const ConvertResult r = convert(f.folder, f.out, options);
  if (r.cancelled) return end_of_interrupted();
  for (const std::string& note : r.notes) notice(note);
  if (r.n_texts_checked > 0)
    notice(fmt::format("the file's tokenizer and tokenizer.json cut {} texts alike", r.n_texts_checked));
  const bool passed = f.no_check || check_converted(r);
  notice(fmt::format("{}: {}, {} tensors, {}, {:.2f} MiB", r.path.string(), r.architecture, r.n_tensors, r.type,
                     static_cast<double>(r.bytes) / (1 << 20)));
  if (interrupted() != 0) return exit_code_of_signal(interrupted());
  return passed ? 0 : kExitMismatch;
}

}  // namespace assay::cli
