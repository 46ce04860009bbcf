// Groups of flags.
#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>
#include <string_view>

#include "assay/devices.h"
#include "assay/error.h"
#include "assay/utf8.h"
#include "terminal.h"

namespace assay::cli {
namespace {

template <class T, class U>
void put(T& target, const std::optional<U>& value) {
  if (value) target = *value;
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 1;  // fits the -s that would repeat it
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
  throw UsageError(
      fmt::format("--logit-bias {}: needs ID+BIAS or ID-BIAS, e.g. 15043+1 or 15043-inf", text));
}

}  // namespace

void ModelFlag::add(Flags& flags) {
  flags.positional("MODEL", positional, "Path of a GGUF file (of a split model: its first part)");
  flags.value("-m,--model", flag, "MODEL", "The same as a flag");
}

std::string ModelFlag::path() const {
  const char* variable = std::getenv("ASSAY_MODEL");  // outranked by an argument in either form
  if (!positional.empty() && variable != nullptr && flag == variable) return positional;
  if (!positional.empty() && !flag.empty() && positional != flag) {
    throw UsageError(fmt::format("two models given: {} and {}", positional, flag));
  }
  if (positional.empty() && flag.empty())
    throw UsageError("no model given: name a GGUF file, e.g. -m model.gguf");
  return positional.empty() ? flag : positional;
}

const std::string& existing(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown)) {
    throw Error(Errc::io,
                fmt::format("{}: there is no such file; needs the path of a GGUF file", path));
  }
  return path;
}

void RuntimeFlags::add(Flags& flags, const std::string& about_n_ctx) {
  flags.group("Running");
  flags.value("-c,--ctx-size", n_ctx, "N", about_n_ctx);
  flags.value("-t,--threads", n_threads, "N",
              "Threads; 0: one per physical core. Never changes a result");
  flags.value("-b,--batch-size", n_batch, "N", "Tokens taken at a time from the prompt at most");
  flags.value("-ub,--ubatch-size", n_ubatch, "N",
              "Tokens computed in one go at most. Never changes a result");
  flags.value("-ctk,--cache-type-k", cache_k, "TYPE", "K cache: f16, q8_0 or f32");
  flags.value("-ctv,--cache-type-v", cache_v, "TYPE", "V cache: f16, q8_0 or f32");
  flags.value("--numerics", numerics, "MODE", "exact (default), f32, fast (GPU; other bits than the CPU's), or oracle (float64, slow)");
  flags.value("--activations", activations, "BITS", "Of modes exact and fast: 15 or 8");
  flags.value("--backend", backend, "NAME",
              "auto, cpu, cuda, or hybrid-f32 (cpu with --numerics f32)");
  flags.value("-ngl,--gpu-layers,--n-gpu-layers", n_gpu_layers, "N",
              "The last N layers and the output on the GPU, the others on the CPU; -1: all. Never changes a result");
  flags.value("-dev,--device", devices, "LIST",
              "GPUs that share the model, e.g. 0,1 (assay devices lists them); default: the first");
  flags.value("-sm,--split-mode", split_mode, "MODE",
              "none (one GPU); layer (each of all GPUs, or of those of --device, has some layers: larger models); tensor (each "
              "has a part of every layer: faster). Never changes a result");
  flags.value("-ts,--tensor-split", tensor_split, "LIST",
              "How much of the layers each GPU of the list has, e.g. 3,1; with --split-mode tensor all have the same");
  flags.value("--kernels", kernels, "SET",
              "auto, reference, avx2, avx512, neon or neon-i8mm. Never changes a result");
  flags.on("--pin-threads", pin, "Binds each thread to one processor");
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
    if (!prefix.empty() && part.starts_with(prefix)) part.remove_prefix(prefix.size());
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

void RuntimeFlags::choose_devices(ContextOptions& o) const {
  if (split_mode && *split_mode != "none" && *split_mode != "layer" && *split_mode != "tensor") {
    throw UsageError(fmt::format("--split-mode {}: needs none, layer or tensor", *split_mode));
  }
  if (split_mode == "tensor") o.split_mode = SplitMode::tensor;
  if (devices) {
    o.devices = numbers_of<int>("--device", *devices, "CUDA");
  } else if (split_mode == "layer" || split_mode == "tensor" || tensor_split) {
    const std::vector<Device> all = list_devices().devices;
    const auto n_gpus = std::count_if(all.begin(), all.end(), [](const Device& d) { return d.backend == "cuda"; });
    for (int i = 0; i < n_gpus; ++i) o.devices.push_back(i);
  }
  if (tensor_split) o.device_shares = numbers_of<float>("--tensor-split", *tensor_split, {});
  if (split_mode == "none" && o.devices.size() > 1) {
    throw UsageError(fmt::format("--split-mode none means one GPU, but --device names {}", o.devices.size()));
  }
  if (o.backend == Backend::cpu && !o.devices.empty()) {
    notice(fmt::format("--device, --split-mode and --tensor-split have no effect: --backend {} runs all layers on the CPU", backend));
  }
}

ContextOptions RuntimeFlags::options() const {
  ContextOptions o;
  const bool gpu_wanted = n_gpu_layers.value_or(0) != 0;
  if (backend == "cuda" || (backend == "auto" && gpu_wanted)) {
    const std::string none = list_devices().no_cuda;
    if (backend == "cuda" && !none.empty()) {
      throw Error(Errc::device,
                  fmt::format("--backend cuda: {}; use --backend cpu, which gives the same bits",
                              none));
    }
    if (!none.empty())
      notice(fmt::format("-ngl has no effect, all layers run on the CPU: {}", none));
  } else if (gpu_wanted) {
    notice(fmt::format("-ngl has no effect: --backend {} runs all layers on the CPU", backend));
  }
  if (backend != "auto" && backend != "cpu" && backend != "cuda" && backend != "hybrid-f32") {
    throw UsageError(fmt::format("--backend {}: needs auto, cpu, cuda or hybrid-f32", backend));
  }
  if (backend == "hybrid-f32" && numerics && *numerics != "f32") {
    throw UsageError(fmt::format(
        "--backend hybrid-f32 means --numerics f32, but --numerics {} was given", *numerics));
  }
  if (n_batch < 1 || n_ubatch < 1) throw UsageError("-b and -ub need at least 1");
  if (activations != 15 && activations != 8)
    throw UsageError(fmt::format("--activations {}: needs 15 or 8", activations));
  if (n_threads < 0 || n_threads > 1024)
    throw UsageError(fmt::format("-t {}: needs 0 to 1024", n_threads));
  o.n_ctx = n_ctx;
  o.n_ubatch = std::min(n_batch, n_ubatch);
  o.n_threads = static_cast<int>(n_threads);
  o.pin_threads = pin;
  o.numerics = parse_numerics(numerics.value_or(backend == "hybrid-f32" ? "f32" : "exact"));
  o.activation_bits = static_cast<int>(activations);
  o.cache_k = parse_kv_type(cache_k);
  o.cache_v = parse_kv_type(cache_v);
  o.kernels = parse_kernels(kernels);
  o.backend = backend == "hybrid-f32" ? Backend::cpu : parse_backend(backend);
  o.n_gpu_layers = std::max<int64_t>(-1, n_gpu_layers.value_or(-1));
  choose_devices(o);
  return o;
}

Context make_context(std::shared_ptr<const Model> model, ContextOptions options) {
  constexpr int64_t kMiB = 1 << 20;
  Progress progress("loading the model onto the GPU", "MiB");
  options.on_load = [&](int64_t done, int64_t total) { progress.update(done / kMiB, total / kMiB); };
  return Context(std::move(model), options);
}

void SamplingFlags::add(Flags& flags) {
  flags.group("Answer");
  flags.value("-n,--predict,--n-predict,--max-tokens", n_predict, "N",
              "Tokens at most; -1: until the context is full");
  flags.values("--stop,-r,--reverse-prompt", stop, "TEXT",
               "Ends the answer before TEXT; may be given several times");
  flags.on("--ignore-eos", ignore_eos, "Forbids the tokens that end an answer");
  flags.on("-sp,--special", special, "Shows control tokens");
  flags.group("Sampling, in the order of its steps");
  flags.value("-s,--seed", seed, "N", "Same seed, same answer; -1: a new one each time");
  flags.values("-l,--logit-bias", logit_bias, "ID+BIAS",
               "Adds to a token's logit, e.g. 15043+1, 15043-inf; may be repeated");
  flags.value("--repeat-last-n", penalty_last_n, "N",
              "Tokens the penalties look back at (64; 0: none, -1: all)");
  flags.value("--repeat-penalty", repeat_penalty, "X", "1: off");
  flags.value("--frequency-penalty", frequency_penalty, "X", "0: off");
  flags.value("--presence-penalty", presence_penalty, "X", "0: off");
  flags.value("--dry-multiplier", dry_multiplier, "X",
              "Penalty for going on with a repetition; 0: off");
  flags.value("--dry-base", dry_base, "X", "Its growth per repeated token (1.75)");
  flags.value("--dry-allowed-length", dry_allowed_length, "N",
              "Repetitions this long are free (2)");
  flags.value("--dry-penalty-last-n", dry_penalty_last_n, "N",
              "Tokens it looks back at (64; 0: none, -1: all)");
  flags.values("--dry-sequence-breaker", dry_breakers, "TEXT",
               "What ends a repetition, in place of \\n : \" *; none: nothing");
  flags.value("--top-n-sigma,--top-nsigma", top_n_sigma, "X",
              "Logits this many deviations below the best go; -1: off");
  flags.value("--top-k", top_k, "N", "Keeps the N best (40); 0: off");
  flags.value("--typical,--typical-p", typical_p, "P", "Locally typical sampling; 1: off");
  flags.value("--top-p", top_p, "P", "Keeps the best that together reach P (0.95); 1: off");
  flags.value("--min-p", min_p, "P",
              "Drops what is less likely than P times the best (0.05); 0: off");
  flags.value("--xtc-probability", xtc_probability, "P",
              "How often the best choices are dropped; 0: off");
  flags.value("--xtc-threshold", xtc_threshold, "P",
              "All but the last of those at least this likely (0.1)");
  flags.value("--temp,--temperature", temperature, "T", "0.8; 0: always the most likely token");
  flags.value("--dynatemp-range", dynamic_range, "X",
              "The temperature moves by this with the entropy; 0: off");
  flags.value("--dynatemp-exp", dynamic_exponent, "X", "Its exponent (1)");
  flags.on("--no-model-sampling", ignore_file,
           "Takes the defaults above, not those in the model's file");
}

GenerateOptions SamplingFlags::options(const Model& model) const {
  GenerateOptions o;
  if (n_predict < -2) throw UsageError(fmt::format("-n {}: needs a count, or -1 for no limit but the context's", n_predict));
  o.n_predict = n_predict < 0 ? -1 : n_predict;
  o.stop = stop;
  o.ignore_eos = ignore_eos;
  o.special = special;
  SamplerOptions& s = o.sampling;
  if (!ignore_file) s = default_sampling(model);
  s.seed = seed < 0 ? random_seed() : static_cast<uint64_t>(seed);
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
  flags.on("--jinja", jinja, "Accepted for habit: templates are always run as Jinja");
}

std::string TemplateFlags::template_text() const {
  if (chat_template && chat_template_file)
    throw UsageError("--chat-template and --chat-template-file exclude each other");
  if (chat_template_file) return read_file(*chat_template_file);
  if (!chat_template) return {};
  const bool is_jinja = chat_template->find("{%") != std::string::npos ||
                        chat_template->find("{{") != std::string::npos;
  if (is_jinja) return *chat_template;
  std::error_code unknown;
  if (!std::filesystem::exists(*chat_template, unknown)) {
    throw UsageError(fmt::format(
        "--chat-template {}: neither Jinja text nor a file; templates have no names here",
        *chat_template));
  }
  return read_file(*chat_template);
}

std::string TemplateFlags::system_text() const {
  if (system && system_file) throw UsageError("-sys and -sysf exclude each other");
  if (system_file) return prompt_from_file(*system_file);
  const std::string text = system.value_or("");
  require_utf8(text, "the system message");
  return text;
}

boost::json::object numerics_json(const Context& context) {
  const ContextOptions& o = context.options();
  boost::json::object result = {{"version", 1}, {"mode", name(o.numerics)}};
  if (o.numerics == Numerics::exact || o.numerics == Numerics::fast) result["activations"] = o.activation_bits;
  if (o.numerics != Numerics::oracle) {
    result["cache_type_k"] = name(o.cache_k);
    result["cache_type_v"] = name(o.cache_v);
  }
  result["backend"] = name(o.backend);
  result["kernels"] = context.kernels();
  return result;
}

boost::json::object timing_json(const PhaseTiming& timing) {
  return {{"tokens", timing.tokens},
          {"ms", timing.ms},
          {"tokens_per_second", timing.tokens_per_second()}};
}

std::string without_last_line_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string prompt_from_file(const std::string& path) {
  std::string text = without_last_line_break(read_file(path));
  require_utf8(text, path);
  return text;
}

}  // namespace assay::cli
