// assay imatrix: importance matrices made, merged and shown.
#include "assay/imatrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/imatrix_run.h"
#include "commands.h"
#include "flags/flags.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

struct ImatrixFlags {
  ModelFlag model;
  OverrideFlag overrides;
  RuntimeFlags runtime;
  std::optional<std::string> file, out;
  std::vector<std::string> in;
  int64_t n_chunks = -1;
  bool process_output = false, parse_special = false, resume = false, statistics = false, as_json = false;

  ImatrixFlags() { runtime.n_ctx = 512; }

  void add(Flags& flags) {
    model.add(flags);
    overrides.add(flags);
    flags.value("-f,--file", file, "FILE", "The text; one line break at its end is dropped");
    flags.value("-o,--output", out, "OUT", "The matrix to write: GGUF, or the old form where OUT ends in .dat");
    flags.value("--chunks", n_chunks, "N", "The first N chunks; -1: all");
    flags.values("--in-file", in, "FILE", "A matrix whose sums are added; without -f nothing else is done");
    flags.on("--process-output", process_output, "Also output.weight");
    flags.on("--parse-special", parse_special, "Control tokens in the text are taken as such");
    flags.on("--resume", resume, "Goes on with OUT, where a run for it was interrupted");
    flags.on("--show-statistics", statistics, "A line for each weight: how its importance is spread");
    flags.on("--json", as_json, "Prints the figures as JSON");
    runtime.add(flags, "Tokens of a chunk (512). Each is run from an empty context");
  }
};

// Of one weight's importance.
struct Spread {
  double mean = 0, smallest = 0, largest = 0, deviation = 0;
  double top_share = 0;  // that the largest hundredth of the columns has of the sum
};

Spread spread_of(const ImatrixEntry& entry) {
  std::vector<float> x = entry.importance();
  std::ranges::sort(x);
  Spread spread;
  double sum = 0, squares = 0, top = 0;
  for (const float value : x) sum += value;
  spread.mean = sum / static_cast<double>(x.size());
  for (const float value : x) squares += (value - spread.mean) * (value - spread.mean);
  const size_t n_top = std::max<size_t>(x.size() / 100, 1);
  for (size_t i = x.size() - n_top; i < x.size(); ++i) top += x[i];
  spread.deviation = std::sqrt(squares / static_cast<double>(x.size()));
  spread.smallest = x.front();
  spread.largest = x.back();
  spread.top_share = sum == 0 ? 0 : top / sum;
  return spread;
}

std::string statistics_of(const Imatrix& imatrix) {
  std::string text = fmt::format("{:<32} {:>9} {:>12} {:>12} {:>12} {:>12} {:>7}\n", "name", "columns", "mean",
                                 "smallest", "largest", "deviation", "top 1 %");
  for (const ImatrixEntry& entry : imatrix.entries) {
    const Spread s = spread_of(entry);
    text += fmt::format("{:<32} {:>9} {:>12.5g} {:>12.5g} {:>12.5g} {:>12.5g} {:>5.1f} %\n", entry.name,
                        entry.n_columns(), s.mean, s.smallest, s.largest, s.deviation, 100 * s.top_share);
  }
  return text;
}

std::string json_of(const Imatrix& imatrix, const std::optional<double>& perplexity) {
  boost::json::array weights;
  for (const ImatrixEntry& entry : imatrix.entries) {
    const Spread s = spread_of(entry);
    weights.push_back({{"name", entry.name},
                       {"columns", entry.n_columns()},
                       {"experts", entry.counts.size()},
                       {"mean", s.mean},
                       {"smallest", s.smallest},
                       {"largest", s.largest},
                       {"deviation", s.deviation},
                       {"top_share", s.top_share}});
  }
  boost::json::array datasets;
  for (const std::string& dataset : imatrix.datasets) datasets.emplace_back(dataset);
  boost::json::object object{{"chunks", imatrix.n_chunks}, {"chunk_size", imatrix.chunk_size}, {"datasets", datasets}};
  if (perplexity) object["perplexity"] = *perplexity;
  object["weights"] = std::move(weights);
  return boost::json::serialize(object) + "\n";
}

ImatrixResult run(const ImatrixFlags& asked) {
  const std::string file = asked.model.resolved();
  require_other_file(asked.out, {asked.file, file});
  const auto model = asked.overrides.load(file);
  ContextOptions context_options = asked.runtime.options();
  Context context = make_context(model, context_options);
  catch_interrupts();
  ImatrixOptions options;
  options.n_chunk = context.n_ctx();
  options.n_chunks_max = std::max<int64_t>(asked.n_chunks, 0);
  options.process_output = asked.process_output;
  options.dataset = *asked.file;  // as it was given, as llama-imatrix has it
  options.cancelled = [] { return interrupted() != 0; };
  Imatrix before;
  if (asked.resume && std::filesystem::exists(*asked.out)) {
    before = read_imatrix(*asked.out);
    options.resumed = &before;
    notice(fmt::format("goes on behind {} chunks", before.n_chunks));
  }
  Progress line("imatrix", "chunks");
  options.progress = [&](int64_t done, int64_t total, double perplexity) {
    line.update(done, total, fmt::format("perplexity {:.4f}", perplexity));
  };
  if (asked.in.empty()) options.on_save = [&](const Imatrix& so_far) { write_imatrix(so_far, *asked.out); };
  EncodeOptions encode;
  encode.parse_special = asked.parse_special;
  return collect_imatrix(context, model->tokenizer()->encode(prompt_from_file(*asked.file), encode), options);
}

void check(const ImatrixFlags& asked) {
  const bool only_shows = asked.statistics || asked.as_json;
  if (!asked.file && asked.in.empty()) throw UsageError("needs a text (-f FILE), or matrices (--in-file FILE)");
  if (!asked.out && (asked.file || !only_shows)) throw UsageError("needs -o OUT");
  if (asked.resume && (!asked.file || !asked.in.empty() || asked.out->ends_with(".dat")))
    throw UsageError("--resume needs -f FILE and an OUT in the GGUF form, and no --in-file");
}

}  // namespace

int imatrix_command(const Arguments& arguments) {
  Flags flags("imatrix",
              "Runs a model over a text and sums, for each matrix, the squares of what it is multiplied with: what "
              "`quantize --imatrix` weighs errors by.",
              "  assay imatrix model-F16.gguf -f calibration.txt -o model.imatrix.gguf\n"
              "  assay imatrix --in-file a.gguf --in-file b.dat -o both.gguf\n"
              "  assay imatrix --in-file model.imatrix.gguf --show-statistics\n");
  ImatrixFlags asked;
  asked.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  check(asked);
  std::optional<double> perplexity;
  std::optional<Imatrix> all;
  if (asked.file) {
    ImatrixResult result = run(asked);
    if (result.cancelled) return exit_code_of_signal(interrupted());
    perplexity = result.perplexity;
    all = std::move(result.imatrix);
  }
  for (const std::string& path : asked.in) {
    const Imatrix more = read_imatrix(existing(path));
    if (all) {
      merge_imatrix(*all, more);
    } else {
      all = more;
    }
  }
  if (asked.out && !asked.in.empty()) write_imatrix(*all, *asked.out);
  if (asked.as_json) {
    Output().write(json_of(*all, perplexity));
  } else {
    if (asked.statistics) Output().write(statistics_of(*all));
    if (perplexity)
      Output().write(fmt::format("{} chunks of {} tokens, {} weights, perplexity {:.4f}\n", all->n_chunks,
                                 all->chunk_size, all->entries.size(), *perplexity));
  }
  return 0;
}

}  // namespace assay::cli
