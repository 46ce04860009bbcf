// assay verify: the whole chain from the file to the drawn token, stage by stage, with a verdict
// for each.
#include "assay/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <optional>
#include <thread>

#include "assay/devices.h"
#include "assay/error.h"
#include "assay/store.h"
#include "assay/tokenizer.h"
#include "assay/utf8.h"
#include "assay/verify_page.h"
#include "commands.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "io/terminal.h"
#include "io/version.h"

namespace assay::cli {
namespace {

struct VerifyFlags {
  ModelFlag model;
  RuntimeFlags runtime;
  OverrideFlag overrides;
  std::optional<std::string> prompt, attention, html;
  std::vector<std::string> against;
  std::string colour = "auto";
  bool quick = false, as_json = false;

  void add(Flags& flags) {
    model.add(flags);
    flags.on("--quick", quick, "Short probes: seconds in place of minutes for a large model");
    flags.value("-p,--prompt", prompt, "TEXT",
                "The text that the operations are run on; default: one that touches every edge");
    flags.values("--against", against, "HF_FOLDER|DUMP|MODE",
                 "What to compare with, repeatable: the folder of Hugging Face that the file was made of, dumps of "
                 "other engines, or modes of this one: "
                 "f32, oracle, exact/8, exact/15, reference, avx2, avx512, neon, neon-i8mm, chunks/N");
    flags.value("--html", html, "FILE",
                "Also writes the report as one HTML page; - is standard output, then without the text");
    flags.value("--attention", attention, "LAYERS", "Layers whose attention the report keeps, e.g. 0,3,8-11");
    flags.on("--json", as_json, "Prints the report as one JSON object");
    add_colour(flags, colour);
    overrides.add(flags);
    runtime.add(flags);
  }
};

// "0,3,8-11"
std::vector<int32_t> parse_layers(const std::string& text) {
  std::vector<int32_t> layers;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto refuse = [&] { throw UsageError(fmt::format("--attention {}: needs layers such as 0,3,8-11", text)); };
  const auto number = [&] {
    int32_t n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 0 || n >= 4096) refuse();
    at = next;
    return n;
  };
  while (true) {
    const int32_t first = number();
    int32_t last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    if (last < first) refuse();
    for (int32_t layer = first; layer <= last; ++layer) layers.push_back(layer);
    if (at == end) return layers;
    if (*at++ != ',') refuse();
  }
}

// What a terminal shows while the stages run: each as it ends, and below them how far the next one
// is.
class LiveView {
 public:
  LiveView(bool shows_stages, bool colour) : shows_stages_(shows_stages), colour_(colour) {}
  ~LiveView() { clear(); }
  LiveView(const LiveView&) = delete;
  LiveView& operator=(const LiveView&) = delete;

  void end_stage(const VerifyStage& stage) {
    clear();
    if (shows_stages_) Output().write_styled(coloured(printable_lines(stage.to_text()), stage.verdict));
  }
  void progress(std::string_view stage, double share) {
    const auto now = std::chrono::steady_clock::now();
    if (!stderr_has_escapes() || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    clear();
    to_stderr(fmt::format("...   {} {:.0f} %", stage, 100 * share));
    shown_ = true;
  }

 private:
  void clear() {
    if (shown_) to_stderr("\r\x1b[K");
    shown_ = false;
  }
  // The first word alone has the colour.
  std::string coloured(const std::string& text, Verdict verdict) const {
    if (!colour_) return text;
    const char* code = verdict == Verdict::fail   ? "1;31"
                       : verdict == Verdict::warn ? "33"
                       : verdict == Verdict::pass ? "32"
                                                  : "2";
    const size_t end = std::min(text.find(' '), text.size());
    return fmt::format("\x1b[{}m{}\x1b[0m{}", code, text.substr(0, end), text.substr(end));
  }

  bool shows_stages_, colour_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// Of the file's vocabulary; none where that cannot be read, which the report says.
TokenTexts token_texts(const std::string& file) {
  try {
    return [tokenizer = Tokenizer::load(file)](TokenId id) {
      return id >= 0 && id < tokenizer->vocab_size() ? quoted_text(tokenizer->piece(id)) : std::string();
    };
  } catch (const Error&) {
    return {};
  }
}

// What the page says beside the report. What cannot be found out is left out: the report itself says what is wrong with
// a file.
VerifyPageFacts page_facts(const std::string& file, bool quick, const TokenTexts& texts) {
  VerifyPageFacts facts;
  facts.date = utc_now();
  const std::string processor = processor_name();
  facts.machine = fmt::format("{}{}", processor.empty() ? "" : processor + ", ",
                              count_of(std::thread::hardware_concurrency(), "processor"));
  facts.program = "assay " + version_text();
  facts.quick = quick;
  facts.token_text = texts;
  try {
    facts.sha256 = sha256_of_file(file);
  } catch (const Error&) {
  }
  return facts;
}

}  // namespace

int verify_command(const Arguments& arguments) {
  Flags flags("verify",
              "Checks the whole chain: file, metadata, tokenizer, chat template, dequantisation, "
              "every operation\n"
              "against float64 and its own rounding bound, KV cache, logits, sampler, detokenizer. "
              "The first wrong\n"
              "operation is named, with its cause where it is a known one. Exit code 5 where a "
              "stage fails.",
              "  assay verify model.gguf\n"
              "  assay verify model.gguf --quick -ctk q8_0 --kernels avx2\n"
              "  assay verify model.gguf --json | jq '.stages[] | select(.verdict == \"fail\")'\n");
  VerifyFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  VerifyOptions options;
  const std::string path = f.model.path();
  options.context = f.runtime.options();
  options.quick = f.quick;
  if (f.prompt) {
    require_utf8(*f.prompt, "the prompt");
    if (f.prompt->empty()) throw UsageError("-p needs a text, found an empty one");
    options.prompt = *f.prompt;
  }
  if (f.attention) {
    options.attention_layers = parse_layers(*f.attention);
    if (!f.html && !f.as_json) throw UsageError("--attention needs --html FILE or --json, which show it");
  }
  const bool html_on_stdout = f.html == "-";
  if (html_on_stdout && f.as_json) throw UsageError("--json and --html - both write to standard output");
  if (f.runtime.n_ctx != 0)
    notice(fmt::format("-c {} has no effect: verify makes contexts as long as its probes", f.runtime.n_ctx));
  options.against = f.against;
  options.override_kv = f.overrides.texts;
  options.on_override = OverrideFlag::say;
  const std::string file = f.model.resolved();
  require_other_file(f.html, {file});
  for (const std::string& one : f.against) require_other_file(f.html, {one});
  const bool colour = want_colour(f.colour);
  catch_interrupts();
  std::optional<OutputFile> html;
  if (f.html) html.emplace(*f.html);
  LiveView view(!f.as_json && !html_on_stdout, colour);
  options.on_stage = [&](const VerifyStage& stage) { view.end_stage(stage); };
  options.on_progress = [&](std::string_view stage, double share) { view.progress(stage, share); };
  options.cancelled = [] { return interrupted() != 0; };
  const VerifyReport report = verify_model(file, options);
  const TokenTexts texts = f.as_json && !html ? TokenTexts() : token_texts(file);  // JSON has ids
  if (!html_on_stdout) Output().write(f.as_json ? report.to_json() : printable_lines(verify_outcome(report, texts)));
  if (html) html->write(verify_page(report, page_facts(file, f.quick, texts)));
  if (interrupted() != 0) return exit_code_of_signal(interrupted());
  return report.passed() ? 0 : kExitMismatch;
}

}  // namespace assay::cli
