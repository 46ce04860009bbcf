// assay bench: llama-bench's flags and JSON keys, with the share of the machine's limits and the memory
// beside them; where the time goes; the start.
#include "assay/bench.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>
#include <optional>

#include "assay/error.h"
#include "commands.h"
#include "commands/bench_report.h"
#include "commands/stores.h"
#include "flags/options.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

std::vector<int64_t> parse_counts(const std::string& text, const char* flag, int64_t least = 0,
                                  int64_t most = INT32_MAX) {
  std::vector<int64_t> counts;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int64_t n = 0;
    const auto [ptr, ec] = std::from_chars(at, end, n);
    if (ec != std::errc() || n < least || n > most || (ptr != end && *ptr != ',')) {
      throw UsageError(fmt::format("{} {}: needs whole numbers from {}, such as 512 or 128,512", flag, text, least));
    }
    counts.push_back(n);
    if (ptr == end) return counts;
    at = ptr + 1;
  }
}

// One way of running, of those that lists of -t, -b, -ub and -ngl make.
struct BenchWay {
  std::string path;
  std::optional<int64_t> n_gpu_layers;
  int64_t n_batch, n_ubatch, n_threads;

  void put(RuntimeFlags& runtime) const {
    runtime.n_gpu_layers = n_gpu_layers;
    runtime.n_batch = n_batch;
    runtime.n_ubatch = n_ubatch;
    runtime.n_threads = n_threads;
  }
};

struct BenchFlags {
  std::string word;  // MODEL
  std::vector<std::string> models;
  std::string repository, url;
  RuntimeFlags runtime;
  RuntimeLists lists;
  std::optional<std::string> prompt_and_gen;
  std::string prompt = "512", gen = "128", depth = "0", parallel = "1", output = "md", flash = "1";
  int64_t repetitions = 5;
  bool no_warmup = false, no_limits = false, no_run_ahead = false, with_profile = false, with_load = false;

  void add(Flags& flags) {
    flags.positional("MODEL", word, "Path of a GGUF file (of a split model: its first part), or a model's name",
                     "-m,-hf,-mu");
    flags.values("-m,--model", models, "MODEL", "The same as a flag; several are measured in turn");
    flags.value("-hf,--hf-repo", repository, "USER/REPO[:QUANT]", "Fetches it from Hugging Face first (assay pull)");
    flags.value("-mu,--model-url", url, "URL", "Fetches it from an address first");
    flags.exclusive({"-m", "-hf", "-mu"});
    flags.value("-p,--n-prompt", prompt, "N,...", "Prompt tokens of each test; 0: no such test");
    flags.value("-n,--n-gen", gen, "N,...", "Generated tokens of each test; 0: no such test");
    flags.value("-pg,--prompt-and-gen", prompt_and_gen, "P,G", "A test of P prompt tokens and then G generated ones");
    flags.value("-d,--n-depth", depth, "N,...",
                "Tokens in the context before a test begins; give them in ascending order, then each "
                "is computed once");
    flags.value("-npl,--n-parallel", parallel, "N,...",
                "Sequences that run together, one token of each in one pass over the weights");
    flags.value("-r,--repetitions", repetitions, "N", "Runs of each test").between(1, 10000);
    flags.value("-o,--output", output, "FORMAT", "md (a table), json, jsonl, csv or sql")
        .one_of({"md", "json", "jsonl", "csv", "sql"});
    flags.value("-fa,--flash-attn", flash, "0|1,...", "Accepted for habit: attention is computed in one way");
    flags.on("--no-warmup", no_warmup, "No run before that does not count");
    flags.on("--no-limits,--no-bandwidth", no_limits,
             "Does not measure what the machine does at best: its threads reading memory, and the "
             "kernels' multiplying instructions on registers alone (0.3 s, after the tests)");
    flags.on("--no-run-ahead", no_run_ahead,
             "Generates without a GPU's beginning with the best token before it is asked for, as it "
             "does for greedy answers (--temp 0): what every other way of choosing tokens gets");
    flags.on("--profile", with_profile,
             "Shows where the time of one generated token and of one prompt goes, in place of tests");
    flags.on("--load", with_load,
             "Shows how long the start takes, from the path to the first token after a prompt of 5, "
             "in place of tests");
    flags.exclusive({"--profile", "--load"});
    runtime.add(flags, "Positions of the context; 0: what the tests need", &lists);
  }

  // Every combination, in the order that llama-bench has: what changes with -t changes fastest.
  std::vector<BenchWay> ways() const {
    std::vector<std::string> paths = models;
    if (!word.empty()) paths = {word};
    for (const std::string& source : {repository, url}) {
      if (!source.empty()) paths = {pull_model(source)};
    }
    if (paths.empty()) throw UsageError("no model given: needs a GGUF file, or a name that `assay list` shows");
    if (flash.find_first_not_of("01,") != std::string::npos || flash.empty())
      throw UsageError(fmt::format("-fa {}: needs 0 and 1, e.g. 0,1", flash));
    std::vector<std::optional<int64_t>> layers = {std::nullopt};
    if (lists.gpu_layers) {
      layers.clear();
      for (int64_t n : parse_counts(*lists.gpu_layers, "-ngl", -1)) layers.emplace_back(n);
    }
    std::vector<BenchWay> list;
    for (const std::string& path : paths)
      for (const auto& n_gpu_layers : layers)
        for (int64_t n_batch : parse_counts(lists.batches, "-b", 1))
          for (int64_t n_ubatch : parse_counts(lists.ubatches, "-ub", 1))
            for (int64_t n_threads : parse_counts(lists.threads, "-t", 0, 1024))
              list.push_back({existing(path), n_gpu_layers, n_batch, n_ubatch, n_threads});
    return list;
  }

  std::vector<BenchTest> tests() const {
    std::vector<BenchTest> list;
    for (int64_t n_sequences : parse_counts(parallel, "-npl")) {
      if (n_sequences < 1) throw UsageError(fmt::format("-npl {}: needs 1 or more sequences", parallel));
      for (int64_t n_depth : parse_counts(depth, "-d")) {
        for (int64_t n : parse_counts(prompt, "-p")) {
          if (n > 0) list.push_back({n, 0, n_depth, n_sequences});
        }
        for (int64_t n : parse_counts(gen, "-n")) {
          if (n > 0) list.push_back({0, n, n_depth, n_sequences});
        }
        if (prompt_and_gen) {
          const std::vector<int64_t> pair = parse_counts(*prompt_and_gen, "-pg");
          if (pair.size() != 2 || pair[0] + pair[1] == 0)
            throw UsageError(fmt::format("-pg {}: needs two counts such as 512,128", *prompt_and_gen));
          list.push_back({pair[0], pair[1], n_depth, n_sequences});
        }
      }
    }
    if (list.empty()) throw UsageError("no test is left: -p and -n are both 0");
    return list;
  }

  // With room for every test, unless -c says how much there is.
  ContextOptions options(const RuntimeFlags& way, const std::vector<BenchTest>& tests) const {
    ContextOptions options = way.options();
    for (const BenchTest& t : tests) {
      if (runtime.n_ctx == 0) options.n_ctx = std::max(options.n_ctx, t.n_prompt + t.n_gen + t.n_depth);
      options.n_sequences = std::max(options.n_sequences, static_cast<int>(t.n_sequences));
    }
    return options;
  }
};

// The tests of one way, as far as an interrupt lets them.
void run_tests(Context& context, int64_t n_batch, const BenchFlags& f, const std::vector<BenchTest>& tests,
               BenchWriter& writer) {
  Bench bench(context, !f.no_run_ahead);
  std::vector<BenchResult> results;
  for (const BenchTest& t : tests) {
    if (stderr_is_terminal()) notice(fmt::format("{}, {} times", test_name(t), f.repetitions));
    BenchResult result = bench.run(t, f.repetitions, !f.no_warmup, [] { return interrupted() != 0; });
    if (interrupted() != 0) break;
    results.push_back(std::move(result));
  }
  BenchReport report{context, n_batch, {}, peak_memory_bytes()};  // before the buffers of the limits
  if (!f.no_limits && interrupted() == 0) report.limits = measure_limits(context);
  writer.add(report, results);
}

// One generated token and one prompt, each after every depth.
void run_profiles(Context& context, const BenchFlags& f, const std::vector<BenchTest>& tests, json::array& list,
                  std::string& text) {
  const MachineLimits limits = f.no_limits ? MachineLimits{} : measure_limits(context);
  for (const BenchTest& t : tests) {
    const int64_t n_tokens = t.n_prompt > 0 ? std::min(t.n_prompt, context.options().n_ubatch) : 1;
    const Profile p = profile(context, n_tokens, t.n_depth, t.n_prompt > 0 ? f.repetitions : 8 * f.repetitions);
    list.push_back(profile_json(p, limits));
    text += profile_text(p, limits) + "\n";
    if (interrupted() != 0) return;
  }
}

int run_load(const BenchWay& way, const BenchFlags& f) {
  RuntimeFlags runtime = f.runtime;
  way.put(runtime);
  ContextOptions options = runtime.options();
  if (options.n_ctx == 0) options.n_ctx = 512;
  const std::vector<StartTiming> start =
      measure_start(way.path, options, f.repetitions, [] { return interrupted() != 0; });
  if (interrupted() != 0) return exit_code_of_signal(interrupted());
  Output().write(f.output == "json" ? to_text(start_json(start), true) + "\n" : start_text(start));
  return 0;
}

int run_ways(const std::vector<BenchWay>& ways, const BenchFlags& f) {
  const std::vector<BenchTest> tests = f.tests();
  BenchWriter writer(f.output);
  json::array profiles;
  std::string profile_texts;
  RuntimeFlags runtime = f.runtime;  // one, so that what it has to say is said once
  for (const BenchWay& way : ways) {
    way.put(runtime);
    const auto model = Model::load(way.path, {.tokenizer = false});
    Context context = make_context(model, f.options(runtime, tests), runtime.verbose);
    if (f.with_profile) {
      run_profiles(context, f, tests, profiles, profile_texts);
    } else {
      run_tests(context, way.n_batch, f, tests, writer);
    }
    if (interrupted() != 0) break;
  }
  if (f.with_profile) {
    Output().write(f.output == "json" ? to_text(profiles, true) + "\n" : profile_texts);
  } else {
    Output().write(writer.text());
  }
  return interrupted() != 0 ? exit_code_of_signal(interrupted()) : 0;
}

}  // namespace

int bench_command(const Arguments& arguments) {
  Flags flags("bench",
              "Measures tokens per second of prompts (pp) and generation (tg), the share of the "
              "memory's bandwidth and of the instructions' peak that they reach, memory, and the start.",
              "  assay bench model.gguf\n"
              "  assay bench model.gguf -p 512 -n 128 -r 3 -o json     llama-bench's keys\n"
              "  assay bench model.gguf -p 0 -n 64 -d 0,4096 --activations 8\n"
              "  assay bench model.gguf -p 0 -n 64 -npl 1,8,32         several sequences at a time\n"
              "  assay bench -m a.gguf -m b.gguf -t 1,2 -ub 64,512 -o csv\n"
              "  assay bench model.gguf --profile                      where the time goes\n"
              "  assay bench model.gguf --load                         from the path to the first token\n");
  BenchFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  f.tests();  // refuses before any file is opened
  const std::vector<BenchWay> ways = f.ways();
  if ((f.with_profile || f.with_load) && f.output != "md" && f.output != "json")
    throw UsageError(fmt::format("-o {}: --profile and --load need md or json", f.output));
  if (f.with_load && ways.size() > 1) throw UsageError("--load measures one model in one way: no lists");
  catch_interrupts();
  return f.with_load ? run_load(ways.front(), f) : run_ways(ways, f);
}

}  // namespace assay::cli
