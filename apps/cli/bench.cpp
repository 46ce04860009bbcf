// assay bench: llama-bench's flags and JSON keys, with the share of the machine's bandwidth and the
// memory beside them.
#include "assay/bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "assay/devices.h"
#include "assay/error.h"
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
    if (ec != std::errc() || n < 0 || (ptr != end && *ptr != ',')) {
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
  std::string prompt = "512", gen = "128", prompt_and_gen, depth = "0", parallel = "1", output = "md";
  int64_t repetitions = 5;
  bool no_warmup = false, no_bandwidth = false, with_profile = false;

  void add(Flags& flags) {
    model.add(flags);
    flags.value("-p,--n-prompt", prompt, "N,...", "Prompt tokens of each test; 0: no such test");
    flags.value("-n,--n-gen", gen, "N,...", "Generated tokens of each test; 0: no such test");
    flags.value("-pg,--prompt-and-gen", prompt_and_gen, "P,G",
                "A test of P prompt tokens and then G generated ones");
    flags.value("-d,--n-depth", depth, "N,...", "Tokens in the context before a test begins");
    flags.value("-npl,--n-parallel", parallel, "N,...",
                "Sequences that run together, one token of each in one pass over the weights");
    flags.value("-r,--repetitions", repetitions, "N", "Runs of each test");
    flags.value("-o,--output", output, "FORMAT", "md (a table) or json");
    flags.on("--no-warmup", no_warmup, "No run before that does not count");
    flags.on("--no-bandwidth", no_bandwidth, "Does not measure the memory's read bandwidth");
    flags.on("--profile", with_profile,
             "Shows where the time of one generated token and of one prompt goes, in place of tests");
    runtime.add(flags);
  }

  std::vector<BenchTest> tests() const {
    std::vector<BenchTest> list;
    for (int64_t n_sequences : parse_counts(parallel, "-npl")) {
      if (n_sequences < 1) throw UsageError("-npl needs 1 or more sequences");
      for (int64_t n_depth : parse_counts(depth, "-d")) {
        for (int64_t n : parse_counts(prompt, "-p")) {
          if (n > 0) list.push_back({n, 0, n_depth, n_sequences});
        }
        for (int64_t n : parse_counts(gen, "-n")) {
          if (n > 0) list.push_back({0, n, n_depth, n_sequences});
        }
        if (!prompt_and_gen.empty()) {
          const std::vector<int64_t> pair = parse_counts(prompt_and_gen, "-pg");
          if (pair.size() != 2)
            throw UsageError(fmt::format("-pg {}: needs two counts such as 512,128", prompt_and_gen));
          list.push_back({pair[0], pair[1], n_depth, n_sequences});
        }
      }
    }
    if (list.empty()) throw UsageError("no test is left: -p and -n are both 0");
    return list;
  }
};

struct Machine {
  double bandwidth = 0;  // bytes per second; 0: not measured
  int64_t peak_memory = 0;
};

// Of the memory's read bandwidth, what generation took by reading every weight once for each token;
// 0 where it is not known.
double share_of_bandwidth(const BenchResult& r, const Model& model, const Machine& machine) {
  if (r.test.n_prompt > 0 || machine.bandwidth <= 0) return 0;
  return static_cast<double>(model.weights_bytes()) * r.avg_ts / static_cast<double>(r.test.n_sequences) /
         machine.bandwidth;
}

std::string model_type(const Model& model) {
  return fmt::format("{} {}", model.architecture(), model.weights_type());
}

// As the driver calls it.
std::string gpu_name() {
  for (const Device& d : list_devices().devices) {
    if (d.backend == "cuda") return d.name;
  }
  return {};
}

json::object result_json(const BenchResult& r, const Context& context, const Machine& machine) {
  const Model& model = context.model();
  const ContextOptions& o = context.options();
  const bool on_gpu = o.backend == Backend::cuda;
  json::object result = {
      {"build_commit", ""},
      {"build_number", 0},
      {"version", ASSAY_VERSION},
      {"cpu_info", processor_name()},
      {"gpu_info", on_gpu ? gpu_name() : ""},
      {"backends", on_gpu ? "CUDA" : "CPU"},
      {"model_filename", model.path()},
      {"model_type", model_type(model)},
      {"model_size", model.file_bytes()},
      {"model_n_params", model.n_parameters()},
      {"n_batch", o.n_ubatch},
      {"n_ubatch", o.n_ubatch},
      {"n_threads", o.n_threads},
      {"type_k", name(o.cache_k)},
      {"type_v", name(o.cache_v)},
      {"n_gpu_layers", on_gpu ? model.n_layers() : 0},
      {"n_prompt", r.test.n_prompt},
      {"n_gen", r.test.n_gen},
      {"n_depth", r.test.n_depth},
      {"n_parallel", r.test.n_sequences},
      {"test_time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
      {"avg_ns", static_cast<int64_t>(r.avg_ns)},
      {"stddev_ns", static_cast<int64_t>(r.stddev_ns)},
      {"avg_ts", r.avg_ts},
      {"stddev_ts", r.stddev_ts},
      {"samples_ns", json::value_from(r.samples_ns)},
      {"samples_ts", json::value_from(r.samples_ts)},
      {"bytes_per_token", model.weights_bytes()},
      {"numerics", numerics_json(context)}};
  if (machine.bandwidth > 0) result["read_bandwidth"] = machine.bandwidth;
  if (const double share = share_of_bandwidth(r, model, machine); share > 0)
    result["share_of_bandwidth"] = share;
  const MemoryFigures memory = context.memory();
  result["peak_memory"] = machine.peak_memory;
  result["memory"] = {{"weights", memory.weights_bytes},
                      {"cache", memory.cache_bytes},
                      {"arena", memory.arena_bytes}};
  return result;
}

std::string test_name(const BenchTest& t) {
  std::string text;
  if (t.n_prompt > 0) text += fmt::format("pp{}", t.n_prompt);
  if (t.n_gen > 0) text += fmt::format("{}tg{}", text.empty() ? "" : "+", t.n_gen);
  if (t.n_depth > 0) text += fmt::format(" @ d{}", t.n_depth);
  if (t.n_sequences > 1) text += fmt::format(" x {}", t.n_sequences);
  return text;
}

std::string table(const std::vector<BenchResult>& results, const Context& context,
                  const Machine& machine) {
  const Model& model = context.model();
  constexpr double kMebibyte = 1 << 20;
  std::string text =
      "| model | size | threads | test | t/s | of the bandwidth |\n| --- | ---: | ---: | ---: | "
      "---: | ---: |\n";
  for (const BenchResult& r : results) {
    const double share = share_of_bandwidth(r, model, machine);
    text += fmt::format("| {} {} | {:.1f} MiB | {} | {} | {:.2f} ± {:.2f} | {} |\n", model.name(),
                        model_type(model), static_cast<double>(model.file_bytes()) / kMebibyte,
                        context.options().n_threads, test_name(r.test), r.avg_ts, r.stddev_ts,
                        share > 0 ? fmt::format("{:.0f} %", 100 * share) : "");
  }
  text += fmt::format("\npeak memory {:.1f} MiB; kernels {}; numerics {}",
                      static_cast<double>(machine.peak_memory) / kMebibyte, context.kernels(),
                      name(context.options().numerics));
  if (context.options().numerics == Numerics::exact)
    text += fmt::format(", {} bits", context.options().activation_bits);
  if (machine.bandwidth > 0)
    text += fmt::format("; memory reads {:.1f} GB/s", machine.bandwidth / 1e9);
  return text + "\n";
}

json::object profile_json(const Profile& p) {
  json::array rows;
  for (const ProfileRow& row : p.rows) {
    rows.push_back(json::object{{"ops", row.ops},
                                {"n_steps", row.n_steps},
                                {"seconds", row.seconds},
                                {"share", row.seconds / p.seconds},
                                {"bytes", row.bytes},
                                {"multiply_adds", row.multiply_adds}});
  }
  return {{"n_tokens", p.n_tokens}, {"n_past", p.n_past}, {"seconds", p.seconds}, {"rows", std::move(rows)}};
}

std::string profile_text(const Profile& p) {
  std::string text =
      fmt::format("{} token{} after {}: {:.3f} ms\n\n{:>8} {:>7} {:>8} {:>9}  ops\n", p.n_tokens,
                  p.n_tokens == 1 ? "" : "s", p.n_past, 1e3 * p.seconds, "ms", "share", "GB/s", "GMAC/s");
  const auto rate = [](int64_t amount, double seconds) {
    return amount > 0 ? fmt::format("{:.1f}", static_cast<double>(amount) / seconds / 1e9) : "";
  };
  for (const ProfileRow& row : p.rows) {
    text += fmt::format("{:>8.3f} {:>6.1f}% {:>8} {:>9}  {}\n", 1e3 * row.seconds,
                        100 * row.seconds / p.seconds, rate(row.bytes, row.seconds),
                        rate(row.multiply_adds, row.seconds), row.ops);
  }
  return text;
}

// One generated token and one prompt, each after every depth.
int run_profiles(Context& context, const std::vector<BenchTest>& tests, int64_t n_repetitions, bool as_json) {
  json::array list;
  std::string text;
  for (const BenchTest& t : tests) {
    const int64_t n_tokens = t.n_prompt > 0 ? std::min(t.n_prompt, context.options().n_ubatch) : 1;
    const Profile p = profile(context, n_tokens, t.n_depth, t.n_prompt > 0 ? n_repetitions : 8 * n_repetitions);
    list.push_back(profile_json(p));
    text += profile_text(p) + "\n";
    if (interrupted() != 0) return exit_code_of_signal(interrupted());
  }
  Output().write(as_json ? to_text(list, true) + "\n" : text);
  return 0;
}

}  // namespace

int bench_command(const Arguments& arguments) {
  Flags flags("bench",
              "Measures tokens per second of prompts (pp) and generation (tg), the share of the "
              "memory's bandwidth, and memory.",
              "  assay bench model.gguf\n"
              "  assay bench model.gguf -p 512 -n 128 -r 3 -o json     llama-bench's keys\n"
              "  assay bench model.gguf -p 0 -n 64 -d 0,4096 --activations 8\n"
              "  assay bench model.gguf -p 0 -n 64 -npl 1,8,32            several sequences at a time\n"
              "  assay bench model.gguf --profile                         where the time goes\n");
  BenchFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (f.output != "md" && f.output != "json")
    throw UsageError(fmt::format("-o {}: needs md or json", f.output));
  if (f.repetitions < 1) throw UsageError("-r needs at least 1");
  const std::vector<BenchTest> tests = f.tests();
  ContextOptions options = f.runtime.options();
  for (const BenchTest& t : tests) {
    if (f.runtime.n_ctx == 0)
      options.n_ctx = std::max(options.n_ctx, t.n_prompt + t.n_gen + t.n_depth);
    options.n_sequences = std::max(options.n_sequences, static_cast<int>(std::min<int64_t>(t.n_sequences, 1 << 20)));
  }
  const auto model = Model::load(existing(f.model.path()), {.tokenizer = false});
  Context context(model, options);
  catch_interrupts();
  if (f.with_profile) return run_profiles(context, tests, f.repetitions, f.output == "json");
  std::vector<BenchResult> results;
  for (const BenchTest& t : tests) {
    if (stderr_is_terminal()) notice(fmt::format("{}, {} times", test_name(t), f.repetitions));
    results.push_back(
        run_bench(context, t, f.repetitions, !f.no_warmup, [] { return interrupted() != 0; }));
    if (interrupted() != 0) return exit_code_of_signal(interrupted());
  }
  Machine machine;
  machine.peak_memory = peak_memory_bytes();  // before the bandwidth's buffers
  if (!f.no_bandwidth) machine.bandwidth = measure_bandwidth(context);
  if (f.output == "md") {
    Output().write(table(results, context, machine));
    return 0;
  }
  json::array list;
  for (const BenchResult& r : results) list.push_back(result_json(r, context, machine));
  Output().write(to_text(list, true) + "\n");
  return 0;
}

}  // namespace assay::cli
