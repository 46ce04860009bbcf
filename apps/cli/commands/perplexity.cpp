// assay perplexity: how well a model predicts a text, and how far it is from another file or mode.
#include "assay/perplexity.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <cmath>

#include "assay/error.h"
#include "assay/utf8.h"
#include "commands.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "io/json_text.h"
#include "io/terminal.h"
#include "io/text_input.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

struct PerplexityFlags {
  ModelFlag model;
  OverrideFlag overrides;
  RuntimeFlags runtime;
  TextInput input;
  std::optional<std::string> against;
  int64_t n_chunks = -1;
  bool as_json = false, per_token = false;

  PerplexityFlags() { runtime.n_ctx = 512; }

  void add(Flags& flags) {
    model.add(flags);
    overrides.add(flags);
    input.add(flags, "The text itself",
              "The text (- is standard input); one line break at its end is dropped. Without -f and -p it is read from "
              "standard input");
    flags.value("--against", against, "MODEL|MODE",
                "What to compare with: another file of the same vocabulary, or the same file in "
                "another mode: " +
                    std::string(kModeNames));
    flags.value("--chunks", n_chunks, "N", "The first N chunks; -1: all").at_least(-1);
    flags.on("--per-token", per_token, "Also a table of every scored token (in --json the key tokens)");
    flags.on("--json", as_json, "Prints the figures as JSON");
    runtime.add(flags,
                "Tokens of a chunk. Each is run from an empty context and scored on "
                "its second half");
  }
};

// One of the two that are compared.
struct Run {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Context> context;

  Run(std::shared_ptr<const Model> loaded, const ContextOptions& options)
      : model(std::move(loaded)), context(std::make_unique<Context>(model, options)) {}
  std::string name() const {
    const ContextOptions& o = context->options();
    std::string text = fmt::format("{}: {} ({}), {}", printable(model->path()), printable(model->name()),
                                   model->weights_type(), assay::name(o.numerics));
    if (o.numerics == Numerics::exact || o.numerics == Numerics::fast)
      text += fmt::format(" with {} bits", o.activation_bits);
    if (o.numerics == Numerics::oracle) return text;
    return text +
           fmt::format(", cache {}/{}, kernels {}", assay::name(o.cache_k), assay::name(o.cache_v), context->kernels());
  }
  json::object to_json() const {
    return {{"model", model->path()},
            {"model_name", model->name()},
            {"weights_type", model->weights_type()},
            {"numerics", numerics_json(*context)}};
  }
};

// Of a share: per cent. Of anything else: as it is.
std::string table_of(const Distribution& d, double scale, const char* unit) {
  std::string text;
  const auto row = [&](const char* name, double x) {
    text += fmt::format("  {:<10}{:>12.6g}{}\n", name, x * scale, unit);
  };
  text += fmt::format("  {:<10}{:>12.6g} ± {:.3g}{}\n", "mean", d.mean * scale, d.standard_error * scale, unit);
  text += fmt::format("  {:<10}{:>12.6g} ± {:.3g}{}\n", "rms", d.rms * scale, d.rms_error * scale, unit);
  row("largest", d.largest);
  row("99.9 %", d.p99_9);
  row("99 %", d.p99);
  row("90 %", d.p90);
  row("median", d.median);
  row("10 %", d.p10);
  row("1 %", d.p1);
  row("0.1 %", d.p0_1);
  row("smallest", d.smallest);
  return text;
}

// A piece of text on one line.
std::string shown(const Model& model, TokenId id) { return quoted_text(model.tokenizer()->piece(id)); }

std::string token_table(const PerplexityResult& r, const Model& model) {
  std::string text = fmt::format("\n{:>8}  {:>8}  {:>10}", "index", "id", "nll");
  if (r.compared) text += fmt::format("  {:>10}  {:>12}  {:>4}", "base nll", "divergence", "top");
  text += "  token\n";
  for (const PerplexityToken& t : r.tokens) {
    text += fmt::format("{:>8}  {:>8}  {:>10.6f}", t.index, t.id, t.nll);
    if (r.compared)
      text += fmt::format("  {:>10.6f}  {:>12.6g}  {:>4}", t.base_nll, t.kl_divergence, t.same_top ? "same" : "not");
    text += fmt::format("  {}\n", shown(model, t.id));
  }
  return text;
}

std::string to_text(const PerplexityResult& r, const Run& run, const Run* base, int64_t n_chunk) {
  std::string text = fmt::format("{}\n", run.name());
  if (base != nullptr) text += fmt::format("against {}\n", base->name());
  text += fmt::format("{}, {} of {}{}, {} scored\n", count_of(r.n_tokens, "token"), count_of(r.n_chunks, "chunk"),
                      n_chunk, r.cancelled() ? fmt::format(" of {} asked for", r.n_chunks_asked) : "",
                      count_of(r.n_scored, "token"));
  if (r.n_not_finite > 0) text += fmt::format("{} of them have a figure that is no finite number\n", r.n_not_finite);
  text += fmt::format("\nperplexity  {:>12.6f} ± {:.6f}    mean nll {:.6f} ± {:.6f}\n", r.perplexity,
                      r.perplexity_error, r.mean_nll, r.mean_nll_error);
  if (r.compared) {
    text += fmt::format("  base      {:>12.6f} ± {:.6f}    mean nll {:.6f} ± {:.6f}\n", r.base_perplexity,
                        r.base_perplexity_error, r.base_mean_nll, r.base_mean_nll_error);
    const double ratio = std::exp(r.log_ratio);
    text += fmt::format("  ratio     {:>12.6f} ± {:.6f}    log {:.6f} ± {:.6f}\n", ratio, ratio * r.log_ratio_error,
                        r.log_ratio, r.log_ratio_error);
    text += fmt::format("\nKL divergence from the base\n{}", table_of(r.kl_divergence, 1, ""));
    text +=
        fmt::format("\nchange of the probability of the text's token\n{}", table_of(r.probability_change, 100, " %"));
    text += fmt::format("\nsame most likely token  {:.3f} ± {:.3f} %\n", 100 * r.same_top, 100 * r.same_top_error);
  }
  return text + (r.tokens.empty() ? "" : token_table(r, *run.model));
}

json::object distribution_json(const Distribution& d) {
  return {{"mean", d.mean},
          {"standard_error", d.standard_error},
          {"rms", d.rms},
          {"rms_error", d.rms_error},
          {"largest", d.largest},
          {"p99.9", d.p99_9},
          {"p99", d.p99},
          {"p90", d.p90},
          {"median", d.median},
          {"p10", d.p10},
          {"p1", d.p1},
          {"p0.1", d.p0_1},
          {"smallest", d.smallest}};
}

json::array tokens_json(const PerplexityResult& r) {
  json::array list;
  for (const PerplexityToken& t : r.tokens) {
    json::object one = {{"index", t.index}, {"id", t.id}, {"nll", t.nll}};
    if (r.compared) {
      one["base_nll"] = t.base_nll;
      one["kl_divergence"] = t.kl_divergence;
      one["same_top"] = t.same_top;
    }
    list.push_back(std::move(one));
  }
  return list;
}

json::object to_json(const PerplexityResult& r, const Run& run, const Run* base, const PerplexityOptions& options,
                     double seconds) {
  json::object o = run.to_json();
  o["n_ctx"] = options.n_chunk;
  o["n_tokens"] = r.n_tokens;
  o["n_chunks"] = r.n_chunks;
  o["n_chunks_asked"] = r.n_chunks_asked;
  o["n_scored"] = r.n_scored;
  o["n_not_finite"] = r.n_not_finite;
  o["seconds"] = seconds;
  o["perplexity"] = r.perplexity;
  o["perplexity_error"] = r.perplexity_error;
  o["mean_nll"] = r.mean_nll;
  o["mean_nll_error"] = r.mean_nll_error;
  if (r.compared) {
    json::object b = base->to_json();
    b["perplexity"] = r.base_perplexity;
    b["perplexity_error"] = r.base_perplexity_error;
    b["mean_nll"] = r.base_mean_nll;
    b["mean_nll_error"] = r.base_mean_nll_error;
    o["base"] = std::move(b);
    o["log_ratio"] = r.log_ratio;
    o["log_ratio_error"] = r.log_ratio_error;
    o["kl_divergence"] = distribution_json(r.kl_divergence);
    o["probability_change"] = distribution_json(r.probability_change);
    o["same_top"] = r.same_top;
    o["same_top_error"] = r.same_top_error;
  }
  if (options.keep_tokens) o["tokens"] = tokens_json(r);
  return o;
}

std::unique_ptr<Run> load_base(const std::string& against, const Run& run) {
  ContextOptions options = run.context->options();
  if (const auto mode = with_mode(options, against)) return std::make_unique<Run>(run.model, *mode);
  std::string path;
  try {
    path = existing(against);
  } catch (const Error& e) {
    if (e.code != Errc::io) throw;
    throw UsageError(
        fmt::format("--against {}: neither a file nor a mode: {}; as a model: {}", against, kModeNames, e.what()));
  }
  options.n_outputs_max = 0;
  return std::make_unique<Run>(Model::load(path), options);
}

}  // namespace

int perplexity_command(const Arguments& arguments) {
  Flags flags("perplexity",
              "How well a model predicts a text, counted as llama-perplexity counts, and with "
              "--against how far its distributions are from those of another file or mode.",
              "  assay perplexity model.gguf -f wiki.test.raw\n"
              "  assay perplexity model-Q4_K_M.gguf -f wiki.test.raw --against model-F16.gguf\n"
              "  assay perplexity model.gguf -f text.txt -c 256 --chunks 8 --against oracle --json\n");
  PerplexityFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (f.n_chunks == 0) throw UsageError(fmt::format("--chunks {}: needs 1 or more, or -1 for all", f.n_chunks));
  const std::string path = f.model.path();
  ContextOptions options = f.runtime.options();
  const std::string text = f.input.text();
  const auto model = f.overrides.load(f.model.resolved());
  const std::vector<TokenId> ids =
      model->tokenizer()->encode(text, {.parse_special = false, .add_bos = {}, .add_eos = false});
  const Run run(model, options);
  warn_beyond_training(*run.context);
  const std::unique_ptr<Run> base = f.against ? load_base(*f.against, run) : nullptr;
  PerplexityOptions o;
  o.n_chunk = run.context->n_ctx();
  o.n_chunks_max = std::max<int64_t>(f.n_chunks, 0);
  o.keep_tokens = f.per_token;
  o.cancelled = [] { return interrupted() != 0; };
  Progress progress("running the text");
  o.progress = [&](int64_t done, int64_t total, double so_far) {
    progress.update(done, total, std::isnan(so_far) ? "" : fmt::format("perplexity {:.4f} so far", so_far));
  };
  catch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  const PerplexityResult r = perplexity(*run.context, base ? base->context.get() : nullptr, ids, o);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (r.n_chunks > 0) {
    Output().write(f.as_json ? to_text(to_json(r, run, base.get(), o, seconds), true) + "\n"
                             : to_text(r, run, base.get(), o.n_chunk));
  } else {
    notice("interrupted before the first chunk was done: there is nothing to show");
  }
  return interrupted() != 0 ? exit_code_of_signal(interrupted()) : 0;
}

}  // namespace assay::cli
