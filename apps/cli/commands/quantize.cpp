// assay quantize: a file of float weights to one of quantised weights.
#include "assay/quantize.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "assay/convert.h"
#include "assay/error.h"
#include "commands.h"
#include "commands/quantize_target.h"
#include "flags/effort_flag.h"
#include "flags/file_threads_flag.h"
#include "flags/options.h"
#include "io/check_written.h"
#include "io/file_progress.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

struct QuantizeFlags {
  std::string in, out, type;
  std::optional<std::string> imatrix, output_tensor_type, token_embedding_type, tensor_type_file, prune_layers;
  std::vector<std::string> include_weights, exclude_weights, tensor_types, override_kv;
  std::string effort = "normal";
  TargetFlags target;
  int64_t n_threads = 0, memory_mib = 256;
  bool pure = false, leave_output_tensor = false, allow_requantize = false, keep_split = false, dry_run = false,
       resume = false, no_check = false;

  void add(Flags& flags) {
    flags.positional("IN", in, "GGUF file of float weights, of a split one the first; or a folder of Hugging Face");
    flags.positional("OUT", out, "The new file. Not needed with --dry-run");
    flags.positional("TYPE", type, "One of: " + names());
    add_file_threads(flags, n_threads);
    flags.value("--effort", effort, "LEVEL", "fast, normal or best: how many candidates are tried for each block");
    flags.on("--dry-run", dry_run, "Prints type, bytes and bits per weight of every tensor, and writes nothing");
    flags.on("--resume", resume, "Goes on where a killed run with the same source and flags stopped");
    flags.on("--no-check", no_check,
             "Leaves out verify's stages of the new file: structure, keys, tokenizer, decoding");
    flags.value("--max-memory", memory_mib, "MIB", "Bound of the buffers");
    flags.group("Importance matrix");
    flags.value("--imatrix", imatrix, "FILE",
                "Weighs the errors of a weight's columns, as assay imatrix or llama-imatrix found them to matter; of "
                "this model");
    flags.values("--include-weights", include_weights, "PART", "Only weights with PART in their name are weighed");
    flags.values("--exclude-weights", exclude_weights, "PART", "Weights with PART in their name are not weighed");
    flags.group("Types");
    flags.values("--tensor-type", tensor_types, "REGEX=TYPE",
                 "Tensors whose name the expression matches get this type; the first that matches counts");
    flags.value("--tensor-type-file", tensor_type_file, "FILE",
                "REGEX=TYPE, apart by spaces or line breaks; they come behind --tensor-type");
    flags.value("--output-tensor-type", output_tensor_type, "TYPE",
                "Of output.weight, and of an embedding that is also the output");
    flags.value("--token-embedding-type", token_embedding_type, "TYPE", "Of the token embeddings");
    flags.on("--pure", pure, "Every tensor gets the type's own format");
    flags.on("--leave-output-tensor", leave_output_tensor, "output.weight stays as it is");
    flags.on("--allow-requantize", allow_requantize,
             "Takes a source that is quantised already: its errors stay and new ones come");
    target.add(flags);
    flags.group("File");
    flags.values("--override-kv", override_kv, "KEY=TYPE:VALUE",
                 "Metadata of the new file; TYPE int, float, bool or str");
    flags.value("--prune-layers", prune_layers, "N,N...", "Blocks that are left out");
    flags.on("--keep-split", keep_split, "As many files as the source has, cut at the same tensors");
  }

  static std::string names() {
    std::string text;
    for (const std::string& name : quantize_type_names()) text += (text.empty() ? "" : " ") + name;
    return text;
  }

  QuantizeOptions options() const {
    QuantizeOptions o;
    o.type = type;
    o.effort = effort_of(effort);
    if (memory_mib < 1 || memory_mib > (1 << 20))
      throw UsageError(fmt::format("--max-memory {}: needs 1 to 1048576 MiB", memory_mib));
    o.n_threads = static_cast<int>(n_threads);
    o.memory_bytes_max = static_cast<uint64_t>(memory_mib) << 20;
    if (imatrix) o.imatrix = existing(*imatrix);
    o.include_weights = include_weights;
    o.exclude_weights = exclude_weights;
    o.output_tensor_type = output_tensor_type;
    o.token_embedding_type = token_embedding_type;
    for (const std::string& rule : tensor_types) o.tensor_types.push_back(split_rule(rule));
    if (tensor_type_file) {
      std::istringstream in_file(read_file(*tensor_type_file));
      for (std::string rule; in_file >> rule;) o.tensor_types.push_back(split_rule(rule));
    }
    o.pure = pure;
    o.leave_output_tensor = leave_output_tensor;
    o.allow_requantize = allow_requantize;
    o.override_kv = override_kv;
    if (prune_layers) o.prune_layers = layers(*prune_layers);
    o.keep_split = keep_split;
    o.resume = resume;
    o.cancelled = [] { return interrupted() != 0; };
    return o;
  }

 private:
  static std::pair<std::string, std::string> split_rule(const std::string& rule) {
    const size_t at = rule.rfind('=');  // an expression may have one itself
    if (at == std::string::npos || at == 0 || at + 1 == rule.size())
      throw UsageError(fmt::format("'{}': needs REGEX=TYPE", rule));
    return {rule.substr(0, at), rule.substr(at + 1)};
  }
  static std::vector<int64_t> layers(const std::string& text) {
    std::vector<int64_t> all;
    const char* at = text.data();
    const char* end = at + text.size();
    while (true) {
      int64_t layer = 0;
      const auto [next, error] = std::from_chars(at, end, layer);
      if (error != std::errc{} || (next != end && *next != ','))
        throw UsageError(fmt::format("--prune-layers {}: needs numbers apart by commas", text));
      all.push_back(layer);
      if (next == end) return all;
      at = next + 1;
    }
  }
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t n : shape) text += fmt::format("{}{}", text.empty() ? "" : " x ", n);
  return text;
}

std::string mib(uint64_t bytes) { return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string table_of(const QuantizePlan& plan) {
  std::string text;
  for (const QuantizedTensor& t : plan.tensors) {
    text += fmt::format("{:<36} {:>22}  {:>5} -> {:<8} {:>13} bytes {:>7.4f} bits a weight\n", t.name,
                        shape_text(t.shape), t.source_type, t.type, t.bytes,
                        8.0 * static_cast<double>(t.bytes) / static_cast<double>(t.n_elements));
  }
  return text + fmt::format("{}: {} tensors, {} -> {}, {} bytes, {:.4f} bits a weight\n", plan.type,
                            plan.tensors.size(), mib(plan.source_bytes), mib(plan.bytes), plan.bytes,
                            plan.bits_per_weight());
}

// Weights of the matrix's kind that it has nothing of.
void say_unweighted(const QuantizePlan& plan) {
  for (const QuantizedTensor& t : plan.tensors) {
    const bool is_encoded = t.type != t.source_type && t.type != "F32" && t.type != "F16" && t.type != "BF16";
    if (is_encoded && !t.is_weighted)
      notice(fmt::format("{}: the importance matrix has no data of it: all columns count the same", t.name));
    if (t.experts_without_data.empty()) continue;
    std::string experts;
    for (const int64_t expert : t.experts_without_data)
      experts += fmt::format("{}{}", experts.empty() ? "" : ", ", expert);
    notice(fmt::format("{}: the importance matrix has no data of experts {}: all their columns count the same", t.name,
                       experts));
  }
}

void say_fallbacks(const QuantizePlan& plan) {
  for (const QuantizedTensor& t : plan.tensors) {
    if (!t.wanted.empty())
      notice(fmt::format("{}: {} columns are not whole blocks of {}: {} instead", t.name, t.shape.back(), t.wanted,
                         t.type));
  }
  if (plan.has_matrix) say_unweighted(plan);
  if (plan.requantized)
    notice(fmt::format("the source is quantised already ({}): its errors stay and new ones come", *plan.requantized));
}

// A folder is converted and quantised in one pass, as `assay convert --outtype` does it.
int quantize_folder(const QuantizeFlags& f) {
  const std::pair<bool, const char*> others[] = {{f.imatrix.has_value(), "--imatrix"},
                                                 {!f.tensor_types.empty(), "--tensor-type"},
                                                 {f.tensor_type_file.has_value(), "--tensor-type-file"},
                                                 {f.output_tensor_type.has_value(), "--output-tensor-type"},
                                                 {f.token_embedding_type.has_value(), "--token-embedding-type"},
                                                 {f.pure, "--pure"},
                                                 {f.leave_output_tensor, "--leave-output-tensor"},
                                                 {f.target.is_asked(), "--target-size and --target-bpw"},
                                                 {!f.override_kv.empty(), "--override-kv"},
                                                 {f.prune_layers.has_value(), "--prune-layers"},
                                                 {f.keep_split, "--keep-split"},
                                                 {f.dry_run, "--dry-run"},
                                                 {f.resume, "--resume"}};
  for (const auto& [is_given, name] : others) {
    if (is_given)
      throw UsageError(fmt::format("{} needs a GGUF file: {} is a folder; assay convert makes one of it", name, f.in));
  }
  const QuantizeOptions asked = f.options();
  ConvertOptions options;
  options.outtype = f.type;
  options.check = !f.no_check;
  options.effort = asked.effort;
  options.n_threads = asked.n_threads;
  options.cancelled = asked.cancelled;
  FileWatch watch("quantising");
  options.progress = watch.tensor_hook();
  const ConvertResult r = convert(f.in, f.out, options);
  if (r.cancelled) return end_of_interrupted();
  for (const std::string& note : r.notes) notice(note);
  const bool passed = f.no_check || check_converted(r);
  notice(fmt::format("{}: {}, {} tensors, {}, {}", r.path.string(), r.architecture, r.n_tensors, r.type, mib(r.bytes)));
  if (interrupted() != 0) return exit_code_of_signal(interrupted());
  return passed ? 0 : kExitMismatch;
}

int dry_run(const std::string& in, const QuantizeOptions& options) {
  const QuantizePlan plan = plan_quantize(existing(in), options);
  say_fallbacks(plan);
  for (const QuantizedTensor& t : plan.tensors) {
    if (!t.needs_matrix) continue;
    notice(fmt::format("{} as {} needs an importance matrix (--imatrix)", t.name, t.type));
    break;
  }
  Output().write(table_of(plan));
  return 0;
}

}  // namespace

int quantize_command(const Arguments& arguments) {
  Flags flags("quantize",
              "Writes the model with smaller weights: looks for the scales and levels that leave the smallest error. "
              "The same file comes of any "
              "number of threads and any processor.",
              "  assay quantize model-BF16.gguf model-Q4_K_M.gguf Q4_K_M\n"
              "  assay quantize model-BF16.gguf Q4_K_M --dry-run           types and sizes\n"
              "  assay quantize model-BF16.gguf model-IQ3_M.gguf IQ3_M --imatrix model.imatrix.gguf\n"
              "  assay quantize model-BF16.gguf model-700M.gguf --target-size 700M\n"
              "  assay quantize in.gguf out.gguf Q5_K_M --tensor-type 'ffn_down=Q8_0' --output-tensor-type F16\n");
  QuantizeFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (f.dry_run && f.type.empty() && !f.target.is_asked()) f.type.swap(f.out);
  if (f.in.empty() || (f.type.empty() && !f.target.is_asked()) || (f.out.empty() && !f.dry_run))
    throw UsageError(
        "needs IN, OUT and TYPE (with --dry-run IN and TYPE, with --target-size or --target-bpw IN and OUT)");
  if (is_model_folder(f.in)) return quantize_folder(f);
  QuantizeOptions options = f.options();
  if (f.target.is_asked()) {
    catch_interrupts();
    if (!choose_by_target(existing(f.in), f.target, options)) return end_of_interrupted();
  }
  if (f.dry_run) return dry_run(f.in, options);
  say_fallbacks(plan_quantize(existing(f.in), options));
  FileWatch watch("quantising");
  options.progress = watch.tensor_hook();
  const QuantizeResult r = quantize(f.in, f.out, options);
  if (r.cancelled) return end_of_interrupted();
  if (r.n_resumed > 0) notice(fmt::format("{} tensors were there already", r.n_resumed));
  if (r.error_beside_normal)
    notice(fmt::format("root mean square error: {:.4f} of that of --effort normal", *r.error_beside_normal));
  const bool passed = f.no_check || check_made_of(r.paths.front(), existing(f.in));
  notice(fmt::format("{}: {} -> {}, {:.4f} bits a weight", r.paths.front().string(), mib(r.plan.source_bytes),
                     mib(r.plan.bytes), r.plan.bits_per_weight()));
  if (interrupted() != 0) return exit_code_of_signal(interrupted());
  return passed ? 0 : kExitMismatch;
}

}  // namespace assay::cli
