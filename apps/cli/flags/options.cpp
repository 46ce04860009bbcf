// Groups of flags.
#include "flags/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "assay/devices.h"
#include "assay/error.h"
#include "assay/inspect.h"
#include "assay/utf8.h"
#include "commands/stores.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

template <class T, class U>
void put(T& target, const std::optional<U>& value) {
  if (value) target = *value;
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 11;  // below 2^53: every reader of JSON keeps it whole
}

// "15043+1.5", "15043-inf": llama.cpp's spelling.
LogitBias parse_logit_bias(const std::string& text) {
  const char* const end = text.data() + text.size();
  LogitBias result;
  const auto id = std::from_chars(text.data(), end, result.token);
  const char* at = id.ptr;
  if (id.ec == std::errc() && at < end && (*at == '+' || *at == '-')) {
    const bool negative = *at++ == '-';
    const auto number = std::from_chars(at, end, result.bias);
    if (number.ec == std::errc() && number.ptr == end && *at != '-') {
      if (negative) result.bias = -result.bias;
      return result;
    }
  }
  throw UsageError(fmt::format("--logit-bias {}: needs ID+BIAS or ID-BIAS, e.g. 15043+1 or 15043-inf", text));
}

}  // namespace

void ModelFlag::add(Flags& flags) {
  flags.positional("MODEL", positional, "Path of a GGUF file (of a split model: its first part), or a model's name",
                   "-m,-hf,-mu");
  flags.value("-m,--model", flag, "MODEL", "The same as a flag");
  flags.value("-hf,--hf-repo", repository, "USER/REPO[:QUANT]", "Fetches it from Hugging Face first (assay pull)");
  flags.value("-mu,--model-url", url, "URL", "Fetches it from an address first");
  flags.exclusive({"-m", "-hf", "-mu"});
}

std::string ModelFlag::path() const {
  for (const std::string& given : {positional, flag, repository, url}) {
    if (!given.empty()) return given;
  }
  throw UsageError("no model given: needs a GGUF file, or a name that `assay list` shows");
}

std::string ModelFlag::resolved() const {
  const std::string given = path();
  return repository.empty() && url.empty() ? existing(given) : pull_model(given);
}

std::string existing(const std::string& path_or_name) { return stores_here().resolve(path_or_name); }

namespace {

constexpr const char* kAboutThreads = "Threads; 0: one per physical core. Never changes a result";
constexpr const char* kAboutBatch = "Tokens taken at a time from the prompt at most";
constexpr const char* kAboutUbatch = "Tokens computed in one go at most. Never changes a result";
constexpr const char* kAboutGpuLayers =
    "The last N layers and the output on the GPU, the others on the CPU; -1: all. Never changes a result";
constexpr const char* kGpuLayerNames = "-ngl,--gpu-layers,--n-gpu-layers";
constexpr const char* kList = " Several, with commas: each in turn";

}  // namespace

void RuntimeFlags::add_lists(Flags& flags, RuntimeLists& lists) {
  flags.value("-t,--threads", lists.threads, "N,...", std::string(kAboutThreads) + "." + kList);
  flags.value("-b,--batch-size", lists.batches, "N,...", std::string(kAboutBatch) + "." + kList);
  flags.value("-ub,--ubatch-size", lists.ubatches, "N,...", std::string(kAboutUbatch) + "." + kList);
  flags.value(kGpuLayerNames, lists.gpu_layers, "N,...", std::string(kAboutGpuLayers) + "." + kList);
}

std::vector<std::string> kernel_set_names() {
  std::vector<std::string> names;
  for (const Kernels kernels : all_kernels()) names.emplace_back(name(kernels));
  return names;
}

void RuntimeFlags::add(Flags& flags, const std::string& about_n_ctx, RuntimeLists* lists) {
  flags.group("Running");
  flags.value("-c,--ctx-size", n_ctx, "N", about_n_ctx).at_least(0);
  if (lists != nullptr) {
    add_lists(flags, *lists);
  } else {
    flags.value("-t,--threads", n_threads, "N", kAboutThreads).between(0, 1024);
    flags.value("-b,--batch-size", n_batch, "N", kAboutBatch).at_least(1);
    flags.value("-ub,--ubatch-size", n_ubatch, "N", kAboutUbatch).at_least(1);
    flags.value(kGpuLayerNames, n_gpu_layers, "N", kAboutGpuLayers).at_least(-1).shows("-1");
  }
  flags.value("-ctk,--cache-type-k", cache_k, "TYPE", "K cache: f16, q8_0 or f32").one_of({"f16", "q8_0", "f32"});
  flags.value("-ctv,--cache-type-v", cache_v, "TYPE", "V cache: f16, q8_0 or f32").one_of({"f16", "q8_0", "f32"});
  flags
      .value("--numerics", numerics, "MODE",
             "exact, f32, fast (GPU; other bits than the CPU's), or oracle (float64, slow)")
      .one_of({"exact", "f32", "fast", "oracle"})
      .shows("exact");
  flags
      .value("--activations", activations, "BITS",
             "Of modes exact and fast: 15 or 8; of fast also 16, quantised weights in half precision")
      .one_of({"15", "8", "16"});
  flags
      .value("--backend", backend, "NAME",
             "auto (cpu or cuda), cpu, cuda, vulkan, or hybrid-f32 (cpu with --numerics f32)")
      .one_of({"auto", "cpu", "cuda", "vulkan", "hybrid-f32"});
  flags.value("-dev,--device", devices, "LIST",
              "GPUs that share the model, e.g. 0,1 (assay devices lists them); default: the first");
  flags
      .value("-sm,--split-mode", split_mode, "MODE",
             "none (one GPU); layer (each of all GPUs, or of those of --device, has some layers: larger models); "
             "tensor (each "
             "has a part of every layer: faster). Never changes a result")
      .one_of({"none", "layer", "tensor"});
  flags.value("-ts,--tensor-split", tensor_split, "LIST",
              "How much of the layers each GPU of the list has, e.g. 3,1; with --split-mode tensor all have the same");
  if (has_kernels_flag) {
    flags
        .value(
            "--kernels", kernels, "SET",
            "auto, reference, avx2, avx512, neon or neon-i8mm; avx2:vector: a row of its table first. Never changes a "
            "result")
        .one_of(kernel_set_names())
        .with_part(':');
  }
  flags.on("--pin-threads", pin, "Binds each thread to one processor");
  flags.on("-v,--verbose", verbose, "Says on standard error what runs, and which ASSAY_ variables no flag has");
  flags.habit("-fa,--flash-attn", "WHEN", {"on", "off", "auto", "1", "0"});
  flags.habit("-tb,--threads-batch", "N");
  flags.habit("--no-mmap");
  flags.habit("--mlock");
  flags.habit("--no-warmup");
  flags.habit("--log-disable");
}

namespace {

// The parts of a list, "a,b".
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <class Number>
std::vector<Number> numbers_of(std::string_view flag, std::string_view list, std::string_view prefix) {
  std::vector<Number> numbers;
  for (std::string_view part : parts_of(list)) {
    const auto is_same = [](char a, char b) { return (a | 32) == (b | 32); };  // of letters: in either case
    if (part.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), part.begin(), is_same))
      part.remove_prefix(prefix.size());
    Number number{};
    const auto [end, problem] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (problem != std::errc() || end != part.data() + part.size() || number < 0) {
      throw UsageError(fmt::format("{} {}: needs numbers with commas between them", flag, list));
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

void RuntimeFlags::say(const std::string& text) const {
  if (std::find(said_.begin(), said_.end(), text) != said_.end()) return;
  notice(text);
  said_.push_back(text);
}

void RuntimeFlags::choose_devices(ContextOptions& o) const {
  if (!devices && !split_mode && !tensor_split) return;
  if (split_mode == "tensor") o.split_mode = SplitMode::tensor;
  const DeviceList list = list_devices();
  if (devices) {
    o.devices = numbers_of<int>("--device", *devices, o.backend == Backend::vulkan ? "VULKAN" : "CUDA");
  } else if (split_mode == "layer" || split_mode == "tensor" || tensor_split) {
    for (const Device& d : list.devices) {
      if (d.backend == (o.backend == Backend::vulkan ? "vulkan" : "cuda") && d.refused.empty())
        o.devices.push_back(d.number);
    }
  }
  if (tensor_split) o.device_shares = numbers_of<float>("--tensor-split", *tensor_split, {});
  if (split_mode == "none" && o.devices.size() > 1) {
    throw UsageError(fmt::format("--split-mode none means one GPU, but --device names {}", o.devices.size()));
  }
  if (o.backend == Backend::vulkan || (o.backend != Backend::cpu && list.no_cuda.empty())) return;
  std::string given;
  for (const auto& [is_given, flag] : {std::pair{devices.has_value(), "--device"},
                                       {split_mode.has_value(), "--split-mode"},
                                       {tensor_split.has_value(), "--tensor-split"}}) {
    if (is_given) given += (given.empty() ? "" : " and ") + std::string(flag);
  }
  const std::string why = o.backend == Backend::cpu ? fmt::format("--backend {} runs all layers on the CPU", backend)
                                                    : "all layers run on the CPU: " + list.no_cuda;
  say(fmt::format("{} without effect: {}", given, why));
  o.devices.clear();
  o.device_shares.clear();
  o.split_mode = SplitMode::layer;
}

ContextOptions RuntimeFlags::options() const {
  ContextOptions o;
  const bool gpu_wanted = n_gpu_layers.value_or(0) != 0;
  if (backend == "cuda" || (backend == "auto" && gpu_wanted)) {
    const std::string none = list_devices().no_cuda;
    if (backend == "cuda" && needs_cuda && !none.empty()) {
      throw Error(Errc::device, fmt::format("--backend cuda: {}; use --backend cpu, which gives the same bits", none));
    }
    if (!none.empty() && needs_cuda) say(fmt::format("-ngl has no effect, all layers run on the CPU: {}", none));
  } else if (backend == "vulkan") {
    if (const std::string none = list_devices().no_vulkan; !none.empty()) {
      throw Error(Errc::device,
                  fmt::format("--backend vulkan: {}; use --backend cpu, which gives the same bits", none));
    }
  } else if (gpu_wanted) {
    say(fmt::format("-ngl has no effect: --backend {} runs all layers on the CPU", backend));
  }
  if (backend == "hybrid-f32" && numerics && *numerics != "f32") {
    throw UsageError(fmt::format("--backend hybrid-f32 means --numerics f32, but --numerics {} was given", *numerics));
  }
  const int64_t n_processors = std::thread::hardware_concurrency();
  if (n_processors > 0 && n_threads > n_processors) {
    say(fmt::format("-t {} is more than the {} here: threads wait for each other, -t 0 takes one per core", n_threads,
                    count_of(n_processors, "processor")));
  }
  o.n_ctx = n_ctx;
  o.n_ubatch = std::min(n_batch, n_ubatch);
  o.n_threads = static_cast<int>(n_threads);
  o.pin_threads = pin;
  o.numerics = parse_numerics(numerics.value_or(backend == "hybrid-f32" ? "f32" : "exact"));
  o.activation_bits = static_cast<int>(activations);
  o.cache_k = parse_kv_type(cache_k);
  o.cache_v = parse_kv_type(cache_v);
  set_kernels(o, kernels);
  o.backend = backend == "hybrid-f32" ? Backend::cpu : parse_backend(backend);
  o.n_gpu_layers = std::max<int64_t>(-1, n_gpu_layers.value_or(-1));
  choose_devices(o);
  return o;
}

namespace {

// The largest n_ctx / 2^i that there is memory for; 0: none. Of the CPU, where trying costs nothing: pages are taken
// when they are written.
int64_t find_fitting(const std::shared_ptr<const Model>& model, ContextOptions options) {
  const bool is_cpu =
      options.backend == Backend::cpu || (options.backend != Backend::vulkan && !list_devices().no_cuda.empty());
  constexpr int64_t kSmallest = 64;
  while (is_cpu && options.n_ctx / 2 >= kSmallest) {
    options.n_ctx /= 2;
    try {
      const Context fits(model, options);
      return options.n_ctx;
    } catch (const Error& e) {
      if (e.code != Errc::out_of_memory) throw;
    }
  }
  return 0;
}

}  // namespace

namespace {

constexpr int64_t kMiB = 1 << 20;

void describe(const Context& context) {
  const Model& model = context.model();
  const ContextOptions& o = context.options();
  const MemoryFigures memory = context.memory();
  notice(fmt::format("{}: {}, {}, {} weights, {}", model.path(), model.name(), model.architecture(),
                     model.weights_type(), count_of(model.n_layers(), "layer")));
  notice(fmt::format("runs on {}, numerics {}, {}, {} of {} trained; weights {} MiB, cache {} MiB, activations {} MiB",
                     context.kernels(), name(o.numerics), count_of(o.n_threads, "thread"),
                     count_of(context.n_ctx(), "position"), model.n_ctx_train(), memory.weights_bytes / kMiB,
                     memory.cache_bytes / kMiB, memory.arena_bytes / kMiB));
  say_borrowed(context);
}

// What make(options) makes, with progress on the way and a way out where memory is short.
template <class Make>
auto made(const std::shared_ptr<const Model>& model, ContextOptions options, const Make& make) try {
  Progress progress("loading the model onto the GPU", "MiB");
  options.on_load = [&](int64_t done, int64_t total) { progress.update(done / kMiB, total / kMiB); };
  return make(options);
} catch (const Error& e) {
  if (e.code != Errc::out_of_memory) throw;
  const int64_t n_ctx = find_fitting(model, options);
  if (n_ctx == 0) throw;
  throw Error(Errc::out_of_memory, fmt::format("{}; -c {} fits", e.what(), n_ctx));
}

}  // namespace

void say_borrowed(const Context& context) {
  const std::vector<std::string> kinds = context.borrowed();
  if (!kinds.empty())
    notice(fmt::format("borrowed, run on the host by their plain reference: {}", fmt::join(kinds, ", ")));
}

Context make_context(std::shared_ptr<const Model> model, ContextOptions options, bool verbose) {
  Context context = made(model, options, [&](const ContextOptions& o) { return Context(model, o); });
  if (verbose) describe(context);
  return context;
}

std::unique_ptr<Scheduler> make_single_scheduler(std::shared_ptr<const Model> model, const ContextOptions& options,
                                                 DraftOptions drafts, bool keeps, bool verbose) {
  SchedulerOptions scheduling;
  scheduling.caches_prompts = keeps;
  scheduling.swap_bytes_max = 0;  // nobody has to give way
  scheduling.drafts = std::move(drafts);
  auto scheduler = made(model, options, [&](const ContextOptions& o) {
    scheduling.context = o;
    return std::make_unique<Scheduler>(model, scheduling);
  });
  if (verbose) describe(scheduler->context());
  return scheduler;
}

void warn_beyond_training(const Context& context) {
  const std::string warning = beyond_training(context.model(), context.n_ctx());
  if (!warning.empty()) notice(warning);
}

void add_colour(Flags& flags, std::string& when) {
  flags.choice("-co,--color", when, "WHEN", {"on", "off", "auto", "always", "never"},
               "on, off, or auto: where the output is a terminal and NO_COLOR is not set");
}

void add_conversation_habits(Flags& flags) {
  flags.habit("--color,-co", "WHEN", {"on", "off", "auto", "always", "never"});
  flags.habit("-cnv,--conversation");
  flags.habit("-st,--single-turn");
  flags.habit("--no-display-prompt");
  flags.habit("--simple-io");
}

void SamplingFlags::add(Flags& flags) {
  flags.group("Answer");
  flags.value("-n,--predict,--n-predict,--max-tokens", n_predict, "N", "Tokens at most; -1: until the context is full")
      .at_least(-2);
  flags.values("--stop,-r,--reverse-prompt", stop, "TEXT", "Ends the answer before TEXT; may be given several times");
  flags.on("--ignore-eos", ignore_eos, "Forbids the tokens that end an answer");
  flags.on("-sp,--special", special, "Shows control tokens");
  flags.group("Sampling, in the order of its steps");
  flags.value("-s,--seed", seed, "N", "Same seed, same answer: 0 to 2^64 - 1; -1: a new one each time");
  flags.values("-l,--logit-bias", logit_bias, "ID+BIAS",
               "Adds to a token's logit, e.g. 15043+1, 15043-inf; may be repeated");
  flags.value("--repeat-last-n", penalty_last_n, "N", "Tokens the penalties look back at (64; 0: none, -1: all)");
  flags.value("--repeat-penalty", repeat_penalty, "X", "1: off");
  flags.value("--frequency-penalty", frequency_penalty, "X", "0: off");
  flags.value("--presence-penalty", presence_penalty, "X", "0: off");
  flags.value("--dry-multiplier", dry_multiplier, "X", "Penalty for going on with a repetition; 0: off");
  flags.value("--dry-base", dry_base, "X", "Its growth per repeated token (1.75)");
  flags.value("--dry-allowed-length", dry_allowed_length, "N", "Repetitions this long are free (2)");
  flags.value("--dry-penalty-last-n", dry_penalty_last_n, "N", "Tokens it looks back at (64; 0: none, -1: all)");
  flags.values("--dry-sequence-breaker", dry_breakers, "TEXT",
               "What ends a repetition, in place of \\n : \" *; none: nothing");
  flags.value("--top-n-sigma,--top-nsigma", top_n_sigma, "X", "Logits this many deviations below the best go; -1: off");
  flags.value("--top-k", top_k, "N", "Keeps the N best (40); 0: off");
  flags.value("--typical,--typical-p", typical_p, "P", "Locally typical sampling; 1: off");
  flags.value("--top-p", top_p, "P", "Keeps the best that together reach P (0.95); 1: off");
  flags.value("--min-p", min_p, "P", "Drops what is less likely than P times the best (0.05); 0: off");
  flags.value("--xtc-probability", xtc_probability, "P", "How often the best choices are dropped; 0: off");
  flags.value("--xtc-threshold", xtc_threshold, "P", "All but the last of those at least this likely (0.1)");
  flags.value("--temp,--temperature", temperature, "T", "0.8; 0: always the most likely token");
  flags.value("--dynatemp-range", dynamic_range, "X", "The temperature moves by this with the entropy; 0: off");
  flags.value("--dynatemp-exp", dynamic_exponent, "X", "Its exponent (1)");
  flags.on("--no-model-sampling", ignore_file, "Takes the defaults above, not those in the model's file");
}

GenerateOptions SamplingFlags::options(const Model& model) const {
  GenerateOptions o;
  o.n_predict = n_predict < 0 ? -1 : n_predict;
  o.stop = stop;
  o.ignore_eos = ignore_eos;
  o.special = special;
  SamplerOptions& s = o.sampling;
  if (!ignore_file) s = default_sampling(model);
  s.seed = seed ? *seed : random_seed();
  put(s.temperature, temperature);
  put(s.dynamic_range, dynamic_range);
  put(s.dynamic_exponent, dynamic_exponent);
  put(s.top_k, top_k);
  put(s.top_p, top_p);
  put(s.min_p, min_p);
  put(s.typical_p, typical_p);
  put(s.top_n_sigma, top_n_sigma);
  put(s.xtc_probability, xtc_probability);
  put(s.xtc_threshold, xtc_threshold);
  put(s.penalty_last_n, penalty_last_n);
  put(s.repeat_penalty, repeat_penalty);
  put(s.frequency_penalty, frequency_penalty);
  put(s.presence_penalty, presence_penalty);
  put(s.dry_multiplier, dry_multiplier);
  put(s.dry_base, dry_base);
  put(s.dry_allowed_length, dry_allowed_length);
  put(s.dry_penalty_last_n, dry_penalty_last_n);
  if (!dry_breakers.empty()) s.dry_sequence_breakers = dry_breakers;
  if (dry_breakers == std::vector<std::string>{"none"}) s.dry_sequence_breakers.clear();
  for (const std::string& text : logit_bias) s.logit_bias.push_back(parse_logit_bias(text));
  check(s);
  return o;
}

void TemplateFlags::add(Flags& flags) {
  flags.group("Chat");
  flags.value("-sys,--system-prompt", system, "TEXT", "The system message");
  flags.value("-sysf,--system-prompt-file", system_file, "FILE", "The same from a file");
  flags.value("--chat-template", chat_template, "JINJA",
              "A template's text or its file's path, in place of the model's own");
  flags.value("--chat-template-file", chat_template_file, "FILE", "The same from a file");
  flags.exclusive({"-sys", "-sysf"});
  flags.exclusive({"--chat-template", "--chat-template-file"});
  flags.habit("--jinja");
}

std::string TemplateFlags::template_text() const {
  if (chat_template_file) return read_file(*chat_template_file);
  if (!chat_template) return {};
  const bool is_jinja =
      chat_template->find("{%") != std::string::npos || chat_template->find("{{") != std::string::npos;
  if (is_jinja) return *chat_template;
  std::error_code unknown;
  if (!std::filesystem::exists(*chat_template, unknown)) {
    throw UsageError(
        fmt::format("--chat-template {}: neither Jinja text nor a file; templates have no names here", *chat_template));
  }
  return read_file(*chat_template);
}

std::optional<std::string> TemplateFlags::system_message() const {
  if (system_file) return prompt_from_file(*system_file);
  if (system) require_utf8(*system, "the system message");
  return system;
}

std::string TemplateFlags::system_text() const { return system_message().value_or(""); }

boost::json::object numerics_json(const Context& context) {
  return numerics_json(context.options(), context.kernels());
}

boost::json::object numerics_json(const ContextOptions& o, std::string_view kernels) {
  boost::json::object result = {{"version", 1}, {"mode", name(o.numerics)}};
  if (o.numerics == Numerics::exact || o.numerics == Numerics::fast) result["activations"] = o.activation_bits;
  if (o.numerics != Numerics::oracle) {
    result["cache_type_k"] = name(o.cache_k);
    result["cache_type_v"] = name(o.cache_v);
  }
  result["backend"] = name(o.backend);
  result["kernels"] = kernels;
  return result;
}

boost::json::object timing_json(const PhaseTiming& timing) {
  return {{"tokens", timing.tokens}, {"ms", timing.ms}, {"tokens_per_second", timing.tokens_per_second()}};
}

std::string without_last_line_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string count_of(int64_t n, std::string_view thing) { return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s"); }

std::string with_rate(const std::string& count, double tokens_per_second) {
  return tokens_per_second > 0 ? fmt::format("{}, {:.1f} tokens/s", count, tokens_per_second) : count;
}

std::string prompt_from_file(const std::string& path) {
  std::string text = without_last_line_break(read_input(path));
  require_utf8(text, path == "-" ? "standard input" : path);
  return text;
}

}  // namespace assay::cli
