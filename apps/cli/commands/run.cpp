// assay run: one answer to one prompt. Only the answer goes to standard output.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>

#include "assay/error.h"
#include "assay/session.h"
#include "assay/utf8.h"
#include "commands.h"
#include "flags/constraint_flags.h"
#include "flags/draft_flags.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "flags/reasoning_flags.h"
#include "io/json_text.h"
#include "io/logprobs.h"
#include "io/terminal.h"
#include "io/text_input.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

struct RunFlags {
  ModelFlag model;
  OverrideFlag overrides;
  RuntimeFlags runtime;
  SamplingFlags sampling;
  TemplateFlags templates;
  TextInput input;
  std::string word;  // the prompt without -p
  bool as_json = false, raw = false, stats = false, escapes = false;
  LogprobsFlag logprobs;
  ReasoningFlags reasoning;
  ConstraintFlags constraint;
  DraftFlags drafts;
  std::optional<bool> context_shift;
  std::optional<int64_t> n_keep;

  void add(Flags& flags) {
    model.add(flags);
    overrides.add(flags);
    flags.positional("PROMPT", word, "The prompt; without it, -p and -f it is read from standard input", "-p");
    input.add(flags, "The same as a flag",
              "The prompt from a file (- is standard input); one line break at its end is dropped");
    flags.exclusive({"PROMPT", "-f"});
    flags.on("-e,--escape", escapes, "Reads \\n, \\t, \\\\, \\\" and \\' in -p as what they stand for");
    flags.on("--no-chat-template,-no-cnv,--no-conversation", raw,
             "Gives the model the raw text; control tokens in it are tokens");
    flags.on("--json", as_json, "Prints text, ids, finish_reason, usage, timings and numerics as JSON, at the end");
    flags.on("--stats", stats, "Prints tokens and speed on standard error (always, where that is a terminal)");
    logprobs.add(flags);
    flags.on_off("--context-shift", "--no-context-shift", context_shift,
                 "Goes on where the context is full, without the older half of what --keep does not keep");
    flags.value("--keep", n_keep, "N", "Tokens of the prompt's beginning that stay then (0; -1: the whole prompt)");
    sampling.add(flags);
    templates.add(flags);
    reasoning.add(flags);
    constraint.add(flags);
    drafts.add(flags);
    runtime.add(flags);
    flags.exclusive({"--context-shift", "--spec-type"});
    for (const char* flag : {"-sys", "-sysf", "--chat-template", "--chat-template-file"})
      flags.exclusive({"--no-chat-template", flag});
    add_conversation_habits(flags);
  }
};

std::string unescape(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      result += text[i];
      continue;
    }
    const char c = text[++i];
    switch (c) {
      case 'n': result += '\n'; break;
      case 't': result += '\t'; break;
      case 'r': result += '\r'; break;
      case '\\':
      case '"':
      case '\'': result += c; break;
      default: result += {'\\', c}; break;
    }
  }
  return result;
}

std::string prompt_of(const RunFlags& f) {
  TextInput input = f.input;
  if (!f.word.empty()) input.prompt = f.word;
  const std::string text = input.text();
  return f.escapes && !input.file ? unescape(text) : text;
}

// The prompt's tokens: through a chat template where the model has one or the flags give one, else
// the raw text.
std::vector<TokenId> prompt_ids(const RunFlags& f, const Model& model, const std::string& prompt) {
  const std::string template_text = f.templates.template_text();
  const std::optional<std::string> system = f.templates.system_message();
  if (f.raw) return raw_ids(model, prompt);
  if (template_text.empty() && model.chat_template_source().empty() && !system) {
    notice("the file has no chat template: the model takes the text raw, as --no-chat-template says it");
    return raw_ids(model, prompt);
  }
  const auto chat_template = require_chat_template(model, template_text);
  return prompt_tokens(model, chat_template.get(), system, prompt, f.reasoning.variables());
}

// What a full context goes on with; none: the answer ends there.
MakeRoom make_room(const RunFlags& f, const Context& context, const std::vector<TokenId>& prompt) {
  if (!f.context_shift.value_or(false)) {
    if (f.n_keep) throw UsageError("--keep needs --context-shift");
    return {};
  }
  const int64_t asked = f.n_keep.value_or(0);
  if (asked < -1) throw UsageError(fmt::format("--keep {}: needs a count, or -1 for the whole prompt", asked));
  const auto size = static_cast<int64_t>(prompt.size());
  const auto& tokenizer = context.model().tokenizer();
  const int64_t n_bos =
      tokenizer && tokenizer->adds_bos() && !prompt.empty() && prompt.front() == tokenizer->bos() ? 1 : 0;
  return drop_older_half(asked < 0 ? size : std::max(n_bos, std::min(asked, size)), context.n_ctx());
}

int64_t n_prompt_read(const Generation& g) { return g.n_prompt_cached + g.prefill.tokens; }

json::object result_json(const Generation& g, const Context& context, double load_ms, const GenerateOptions& options) {
  const auto n_answer = static_cast<int64_t>(g.ids.size());
  json::object result = {{"text", g.text},
                         {"ids", json::value_from(g.ids)},
                         {"finish_reason", name(g.finish_reason)},
                         {"usage",
                          {{"prompt_tokens", n_prompt_read(g)},
                           {"completion_tokens", n_answer},
                           {"total_tokens", n_prompt_read(g) + n_answer}}},
                         {"timings",
                          {{"load", {{"tokens", 0}, {"ms", load_ms}, {"tokens_per_second", 0}}},
                           {"prefill", timing_json(g.prefill)},
                           {"decode", timing_json(g.decode)}}},
                         {"numerics", numerics_json(context)},
                         {"model", context.model().name()},
                         {"seed", options.sampling.seed}};
  if (options.n_top_logprobs >= 0) {
    result["logprobs"] = logprobs_value(context.model().tokenizer().get(), g.logprobs);
  }
  if (!g.reasoning.empty()) result["reasoning_content"] = g.reasoning;
  if (g.n_dropped > 0) result["tokens_dropped"] = g.n_dropped;
  if (g.n_drafted > 0) result["drafts"] = {{"drafted", g.n_drafted}, {"accepted", g.n_accepted}};
  return result;
}

void show_stats(const Generation& g, double load_ms, uint64_t seed) {
  const std::string prompt = n_prompt_read(g) < g.n_prompt
                                 ? fmt::format("{} of {}", n_prompt_read(g), count_of(g.n_prompt, "token"))
                                 : count_of(g.n_prompt, "token");
  const std::string answer = count_of(static_cast<int64_t>(g.ids.size()), "token");
  notice(fmt::format("loaded in {:.0f} ms; prompt {}; answer {}; seed {}", load_ms,
                     with_rate(prompt, g.prefill.tokens_per_second()), with_rate(answer, g.decode.tokens_per_second()),
                     seed));
  if (g.n_drafted > 0)
    notice(fmt::format("guessed ahead: {}, {} of them right", count_of(g.n_drafted, "token"), g.n_accepted));
}

}  // namespace

int run_command(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  Flags flags("run", "Answers one prompt. Only the answer goes to standard output, all else to standard error.",
              "  assay run model.gguf 'Why is the sky blue?'\n"
              "  assay run model.gguf -sys 'Answer in one word.' -p 'Capital of Norway?' --temp 0\n"
              "  git diff | assay run model.gguf -sys 'Write a commit message for this diff.' -n 200\n"
              "  assay run model.gguf -p 'Once upon a time' --no-chat-template -n 64 --seed 7\n"
              "  assay run model.gguf -p 'Hi' --json | jq .timings\n");
  RunFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const std::string path = f.model.path();
  const ContextOptions context_options = f.runtime.options();
  const auto constraint = f.constraint.constraint();
  const std::string prompt = prompt_of(f);
  catch_interrupts();
  const auto loading = f.input.prompt || f.input.file || !f.word.empty()
                           ? start
                           : std::chrono::steady_clock::now();  // waiting for standard input is no loading
  const auto model = f.overrides.load(f.model.resolved());
  const std::vector<TokenId> ids = prompt_ids(f, *model, prompt);
  GenerateOptions options = f.sampling.options(*model);
  options.n_top_logprobs = f.logprobs.count();
  if (constraint) options.mask = constrain(constraint, std::make_shared<const TokenTree>(*model));
  const std::unique_ptr<Scheduler> scheduler =
      make_single_scheduler(model, context_options, f.drafts.options(), false, f.runtime.verbose);
  const Context& context = scheduler->context();
  warn_beyond_training(context);
  const double load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - loading).count();

  Output out;
  Progress progress("reading the prompt");
  Request request;
  request.prompt = ids;
  request.generate = options;
  request.make_room = make_room(f, context, ids);
  request.progress = [&](int64_t done, int64_t total) {
    if (total > 1) progress.update(done, total);
  };
  ReasoningOptions reasoning = f.reasoning.options(*model, f.templates.template_text(), f.raw);
  reasoning.sink = [&](std::string_view text) {
    if (!f.as_json) to_stderr(printable_lines(text));
  };
  const auto show = [&](std::string_view text) {
    if (!f.as_json) out.write(text);
  };
  const Generation g =
      run_parted(*scheduler, std::move(request), reasoning, show, [&] { return interrupted() != 0 || out.gone(); });
  if (!f.as_json && !g.reasoning.empty()) to_stderr("\n");
  if (f.as_json) {
    out.write(to_text(result_json(g, context, load_ms, options)) + "\n");
  } else if (!g.text.ends_with('\n')) {
    out.write("\n");
  }
  if (options.n_top_logprobs >= 0 && !f.as_json) {
    to_stderr(printable_lines(logprobs_table(model->tokenizer().get(), g.logprobs)));
  }
  if (g.context_full)
    notice(fmt::format("the context of {} tokens is full: raise it with -c, or go on with --context-shift",
                       context.n_ctx()));
  if (g.n_dropped > 0)
    notice(fmt::format("the context of {} tokens was full: {} older ones left it for others", context.n_ctx(),
                       g.n_dropped));
  if (f.stats || (stderr_is_terminal() && !f.as_json)) show_stats(g, load_ms, options.sampling.seed);
  return interrupted() != 0 ? exit_code_of_signal(interrupted()) : 0;
}

}  // namespace assay::cli
