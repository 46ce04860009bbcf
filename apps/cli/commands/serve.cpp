// assay serve: a model behind HTTP, in the shapes of OpenAI's API.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "assay/error.h"
#include "assay/server.h"
#include "assay/session.h"
#include "assay/utf8.h"
#include "assay/version.h"
#include "commands.h"
#include "flags/draft_flags.h"
#include "flags/limit_flags.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "flags/reasoning_flags.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

struct ServeFlags {
  ModelFlag model;
  OverrideFlag overrides;
  RuntimeFlags runtime;
  SamplingFlags sampling;
  DraftFlags drafts;
  ReasoningFlags reasoning;
  LimitFlags limits;
  std::optional<std::string> chat_template, chat_template_file, key, key_file, pooling, prompt_folder, certificate,
      certificate_key;
  std::vector<std::string> aliases, allowed_hosts, origins;
  std::string host = "127.0.0.1";
  int64_t port = 8080, n_parallel = 4, n_queue = 0, n_positions = 0;
  std::optional<double> swap_gb;
  double prompt_folder_gb = 8, gap_ms = 250, drain_s = 30, request_s = 600;
  bool no_key = false, no_cache = false, shares_cache = false, lenient = false, quiet = false, logs_prompts = false;

  void add(Flags& flags) {
    model.add(flags);
    overrides.add(flags);
    flags.value("--host", host, "ADDRESS", "Where to listen; beyond this machine only with keys or --no-key");
    flags.value("--port", port, "N", "0: any free one, told at the start");
    flags.value("-np,--parallel", n_parallel, "N", "Requests that run at once, each with the -c positions of its own");
    flags.value("--max-total-tokens", n_positions, "N",
                "Positions that all requests share, at least -c; when they are short, a request waits for its place a "
                "while. 0: -c times -np. Never changes a result");
    flags
        .value("--swap-space", swap_gb, "GB",
               "Of memory beside these for requests that wait so; 0: what they had is computed again")
        .shows("a quarter of them");
    flags.value("--max-queue", n_queue, "N", "Requests that wait at most; 0: 16, or 4 times -np where that is more");
    flags.values("-a,--alias", aliases, "NAME",
                 "The model's name in requests, in place of its file's; may be repeated");
    flags.value("--chat-template", chat_template, "JINJA", "A template's text, in place of the model's own");
    flags.value("--chat-template-file", chat_template_file, "FILE", "The same from a file");
    reasoning.add(flags);
    flags.value("--pooling", pooling, "KIND", "How a text's rows become its embedding")
        .one_of({"mean", "cls", "last"})
        .shows("what the file says");
    flags.habit("--embeddings,--embedding");
    flags.on("--no-cache-prompt", no_cache, "Keeps nothing of a prompt for the next one. Never changes a result");
    flags.on("--share-cache", shares_cache,
             "Requests of different keys share what the cache holds of their prompts, though one could guess another's "
             "by the time they take");
    flags.value("--prompt-cache-dir", prompt_folder, "DIR",
                "Beginnings of prompts outlive the server there, in the clear");
    flags.value("--prompt-cache-size", prompt_folder_gb, "GB",
                "Of that folder at most; the least recently used goes first");
    flags.on("--lenient", lenient, "Unknown fields are listed in x-ignored-params, not refused");
    flags.group("Access");
    flags.value("--api-key", key, "KEY", "Requests need this key");
    flags.value("--api-key-file", key_file, "FILE", "Keys, one a line: KEY [name=N] [weight=W]");
    flags.value("--ssl-cert-file", certificate, "FILE", "HTTPS: the server's certificate and those above it, PEM");
    flags.value("--ssl-key-file", certificate_key, "FILE", "Its private key, PEM");
    flags.on("--no-key", no_key, "Serves anybody who can reach the address");
    flags.values("--allow-host", allowed_hosts, "NAME",
                 "A further name of this machine in the header Host; may be repeated");
    flags.values("--cors-origin", origins, "ORIGIN",
                 "Pages from there may ask, e.g. https://example.org; may be repeated");
    flags.group("Limits");
    flags.value("--max-gap-ms", gap_ms, "MS", "A step with prompts is kept this short while answers wait");
    flags.value("--request-timeout", request_s, "S", "From a request's coming to its answer's end");
    flags.value("--drain-timeout", drain_s, "S", "For answers to finish after a signal");
    limits.add(flags);
    flags.on("--log-disable", quiet, "No line on standard error for each request");
    flags.on("--log-prompts", logs_prompts, "That line has the texts of the prompts too");
    sampling.add(flags);
    drafts.add(flags);
    runtime.add(flags, "Positions that a request may use; 0: the smaller of the model's own and 4096");
  }

  ServerOptions options(const Model& loaded) const {
    const auto in_range = [](const char* flag, int64_t x, int64_t least, int64_t most) {
      if (x < least || x > most) throw UsageError(fmt::format("{} {}: needs {} to {}", flag, x, least, most));
    };
    const auto positive = [](const char* flag, double x) {
      if (!(x > 0 && x <= 1e6)) throw UsageError(fmt::format("{} {}: needs more than 0, at most 1e6", flag, x));
    };
    in_range("--port", port, 0, 65535);
    in_range("-np", n_parallel, 1, 1024);
    in_range("--max-queue", n_queue, 0, 1 << 20);
    in_range("--max-total-tokens", n_positions, 0, int64_t{1} << 40);
    positive("--prompt-cache-size", prompt_folder_gb);
    if (swap_gb && !(*swap_gb >= 0 && *swap_gb <= 1e6))
      throw UsageError(fmt::format("--swap-space {}: needs 0 to 1e6", *swap_gb));
    positive("--max-gap-ms", gap_ms);
    positive("--request-timeout", request_s);
    positive("--drain-timeout", drain_s);
    if (key && key_file) throw UsageError("--api-key and --api-key-file exclude each other");
    if (certificate.has_value() != certificate_key.has_value())
      throw UsageError("--ssl-cert-file and --ssl-key-file need each other");
    if (quiet && logs_prompts) throw UsageError("--log-disable and --log-prompts exclude each other");
    if (chat_template && chat_template_file)
      throw UsageError("--chat-template and --chat-template-file exclude each other");
    ServerOptions o;
    o.scheduler.context = runtime.options();
    o.scheduler.context.n_sequences = static_cast<int>(n_parallel);
    o.scheduler.n_waiting_max = n_queue;
    o.scheduler.gap_ms_max = gap_ms;
    o.scheduler.caches_prompts = !no_cache;
    o.scheduler.context.n_positions_max = n_positions;
    if (swap_gb) o.scheduler.swap_bytes_max = static_cast<int64_t>(*swap_gb * 1e9);
    o.scheduler.drafts = drafts.options();
    o.scheduler.prompt_folder = prompt_folder.value_or("");
    o.scheduler.prompt_folder_bytes_max = static_cast<int64_t>(prompt_folder_gb * 1e9);
    o.scheduler.on_notice = [](std::string_view line) { notice(printable(line)); };
    o.defaults = sampling.options(loaded);
    if (sampling.seed) o.seed = *sampling.seed;
    o.chat_template = chat_template_file ? read_file(*chat_template_file) : chat_template.value_or("");
    reasoning.options(loaded, o.chat_template, false);  // their ranges
    o.parts_reasoning = reasoning.format != "none";
    o.n_reasoning_max = reasoning.n_max;
    o.template_variables = reasoning.variables();
    if (pooling) o.pooling = parse_pooling(*pooling);
    o.names = aliases;
    o.host = host;
    o.port = static_cast<uint16_t>(port);
    if (key) o.keys = {{*key, "key 1", 1}};
    if (key_file) o.keys = parse_api_keys(read_file(*key_file));
    if (key_file && o.keys.empty()) throw UsageError(fmt::format("--api-key-file {}: it holds no key", *key_file));
    o.certificate_file = certificate.value_or("");
    o.key_file = certificate_key.value_or("");
    o.without_key = no_key;
    o.allowed_hosts = allowed_hosts;
    o.cors_origins = origins;
    o.share_cache = shares_cache;
    o.lenient = lenient;
    o.log_prompts = logs_prompts;
    limits.set(o);
    o.request_s_max = request_s;
    o.drain_s_max = drain_s;
    o.version = ASSAY_VERSION;
    if (!quiet) o.log = [](std::string_view line) { to_stderr(fmt::format("{}\n", printable(line))); };
    return o;
  }
};

}  // namespace

int serve_command(const Arguments& arguments) {
  Flags flags("serve",
              "Serves a model over HTTP, in the shapes of OpenAI's API. An answer has the bits that `assay run` gives, "
              "whoever else asks.",
              "  assay serve model.gguf\n"
              "  assay serve model.gguf -np 8 -c 8192 --port 9000 --alias tiny\n"
              "  assay serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
              "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
              "       -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'\n");
  ServeFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const std::string path = f.model.path();
  catch_interrupts();
  const auto model = f.overrides.load(f.model.resolved());
  const ServerOptions options = f.options(*model);
  Server server(model, options);
  const Context& context = server.context();
  notice(fmt::format("serving {} at {}://{}:{}, {} requests at once, {} positions each{}",
                     options.names.empty() ? std::filesystem::path(path).stem().string() : options.names.front(),
                     options.certificate_file.empty() ? "http" : "https", options.host, server.port(),
                     context.options().n_sequences, context.n_ctx(),
                     options.scheduler.context.n_positions_max > 0
                         ? fmt::format(", {} in all", options.scheduler.context.n_positions_max)
                         : ""));
  if (context.options().backend != Backend::cpu) say_borrowed(context);  // the CPU copies nothing for it
  server.run([] { return interrupted() != 0; });
  return interrupted() != 0 ? exit_code_of_signal(interrupted()) : 0;
}

}  // namespace assay::cli
