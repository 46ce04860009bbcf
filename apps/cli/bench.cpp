// assay bench: llama-bench's flags and JSON keys, with the share of the machine's limits and the memory
// beside them; where the time goes; the start.
#include "assay/bench.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>
#include <optional>

#include "assay/error.h"
#include "bench_report.h"
#include "commands.h"
#include "json_text.h"
#include "options.h"
#include "terminal.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

std::vector<int64_t> parse_counts(const std::string& text, const char* flag) {
  std::vector<int64_t> counts;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int64_t n = 0;
    const auto [ptr, ec] = std::from_chars(at, end, n);
    if (ec != std::errc() || n < 0 || n > INT32_MAX || (ptr != end && *ptr != ',')) {
      throw UsageError(fmt::format("{} {}: needs counts such as 512 or 128,512", flag, text));
    }
    counts.push_back(n);
    if (ptr == end) return counts;
    at = ptr + 1;
  }
}

struct BenchFlags {
  ModelFlag model;
  RuntimeFlags runtime;
  std::optional<std::string> prompt_and_gen;
  std::string prompt = "512", gen = "128", depth = "0", parallel = "1", output = "md";
  int64_t repetitions = 5;
  bool no_warmup = false, no_limits = false, no_run_ahead = false, with_profile = false, with_load = false;

  void add(Flags& flags) {
    model.add(flags);
    flags.value("-p,--n-prompt", prompt, "N,...", "Prompt tokens of each test; 0: no such test");
    flags.value("-n,--n-gen", gen, "N,...", "Generated tokens of each test; 0: no such test");
    flags.value("-pg,--prompt-and-gen", prompt_and_gen, "P,G",
                "A test of P prompt tokens and then G generated ones");
    flags.value("-d,--n-depth", depth, "N,...",
                "Tokens in the context before a test begins; give them in ascending order, then each "
                "is computed once");
    flags.value("-npl,--n-parallel", parallel, "N,...",
                "Sequences that run together, one token of each in one pass over the weights");
    flags.value("-r,--repetitions", repetitions, "N", "Runs of each test");
    flags.value("-o,--output", output, "FORMAT", "md (a table) or json");
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
    runtime.add(flags);
  }

  void check() const {
    if (output != "md" && output != "json")
      throw UsageError(fmt::format("-o {}: needs md or json", output));
    if (repetitions < 1 || repetitions > 10000)
      throw UsageError(fmt::format("-r {}: needs 1 to 10000", repetitions));
    if (with_profile && with_load) throw UsageError("--profile and --load exclude each other");
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
  ContextOptions options(const std::vector<BenchTest>& tests) const {
    ContextOptions options = runtime.options();
    for (const BenchTest& t : tests) {
      if (runtime.n_ctx == 0) options.n_ctx = std::max(options.n_ctx, t.n_prompt + t.n_gen + t.n_depth);
      options.n_sequences = std::max(options.n_sequences, static_cast<int>(t.n_sequences));
    }
    return options;
  }
};

int run_tests(Context& context, const BenchFlags& f, const std::vector<BenchTest>& tests) {
  Bench bench(context, !f.no_run_ahead);
  std::vector<BenchResult> results;
  for (const BenchTest& t : tests) {
    if (stderr_is_terminal()) notice(fmt::format("{}, {} times", test_name(t), f.repetitions));
    results.push_back(bench.run(t, f.repetitions, !f.no_warmup, [] { return interrupted() != 0; }));
    if (interrupted() != 0) return exit_code_of_signal(interrupted());
  }
  BenchReport report{context, f.runtime.n_batch, {}, peak_memory_bytes()};  // before the buffers of the limits
  if (!f.no_limits) report.limits = measure_limits(context);
  Output().write(f.output == "json" ? to_text(tests_json(report, results), true) + "\n"
                                    : tests_table(report, results));
  return 0;
}

// One generated token and one prompt, each after every depth.
int run_profiles(Context& context, const BenchFlags& f, const std::vector<BenchTest>& tests) {
  const MachineLimits limits = f.no_limits ? MachineLimits{} : measure_limits(context);
  json::array list;
  std::string text;
  for (const BenchTest& t : tests) {
    const int64_t n_tokens = t.n_prompt > 0 ? std::min(t.n_prompt, context.options().n_ubatch) : 1;
    const Profile p =
        profile(context, n_tokens, t.n_depth, t.n_prompt > 0 ? f.repetitions : 8 * f.repetitions);
    list.push_back(profile_json(p, limits));
    text += profile_text(p, limits) + "\n";
    if (interrupted() != 0) return exit_code_of_signal(interrupted());
  }
  Output().write(f.output == "json" ? to_text(list, true) + "\n" : text);
  return 0;
}

int run_load(const std::string& path, const BenchFlags& f) {
  ContextOptions options = f.runtime.options();
  if (options.n_ctx == 0) options.n_ctx = 512;
  const std::vector<StartTiming> start =
      measure_start(path, options, f.repetitions, [] { return interrupted() != 0; });
  if (interrupted() != 0) return exit_code_of_signal(interrupted());
  Output().write(f.output == "json" ? to_text(start_json(start), true) + "\n" : start_text(start));
  return 0;
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
              "  assay bench model.gguf --profile                      where the time goes\n"
              "  assay bench model.gguf --load                         from the path to the first token\n");
  BenchFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  f.check();
  const std::vector<BenchTest> tests = f.tests();
  const std::string path = existing(f.model.path());
  catch_interrupts();
  if (f.with_load) return run_load(path, f);
  const auto model = Model::load(path, {.tokenizer = false});
  Context context = make_context(model, f.options(tests));
  return f.with_profile ? run_profiles(context, f, tests) : run_tests(context, f, tests);
}

}  // namespace assay::cli
