// assay chat: a conversation in the terminal. Where standard input is no terminal, each line of it
// is a message.
#include <fmt/format.h>

#include <iostream>

#include "assay/error.h"
#include "assay/session.h"
#include "assay/utf8.h"
#include "commands.h"
#include "commands/chat_repl.h"
#include "flags/constraint_flags.h"
#include "flags/draft_flags.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "flags/reasoning_flags.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

struct ChatFlags {
  ModelFlag model;
  OverrideFlag overrides;
  RuntimeFlags runtime;
  SamplingFlags sampling;
  TemplateFlags templates;
  ReasoningFlags reasoning;
  ConstraintFlags constraint;
  DraftFlags drafts;
  std::string colour = "auto";
  std::optional<bool> context_shift;
  std::optional<std::string> prompt, file;
  bool no_history = false, single_turn = false;

  void add(Flags& flags) {
    model.add(flags);
    overrides.add(flags);
    flags.value("-p,--prompt", prompt, "TEXT", "The first message");
    flags.value("-f,--file", file, "FILE", "The same from a file; one line break at its end is dropped");
    flags.exclusive({"-p", "-f"});
    flags.on("-st,--single-turn", single_turn, "Ends after one answer");
    add_colour(flags, colour);
    flags.on_off("--context-shift", "--no-context-shift", context_shift,
                 "Where the context is full, the oldest turns are left out (on), or the conversation stops (off)");
    flags.on("--no-history", no_history, "Neither reads nor writes the file of lines typed before");
    sampling.add(flags);
    templates.add(flags);
    reasoning.add(flags);
    constraint.add(flags);
    drafts.add(flags);
    runtime.add(flags);
    add_conversation_habits(flags);
  }

  std::optional<std::string> first_message() const {
    if (!prompt && !file) return std::nullopt;
    if (file == "-")
      throw UsageError(
          "-f -: standard input is where a conversation's lines come from; assay run takes a prompt from it");
    const std::string text = prompt ? *prompt : prompt_from_file(*file);
    if (text.empty()) throw UsageError(fmt::format("no prompt: {} is empty", prompt ? "-p" : *file));
    require_utf8(text, "the text of -p");
    return text;
  }
};

ChatSession make_session(const ChatFlags& f, const std::string& path, const ContextOptions& context_options,
                         const ReplOptions& repl) {
  const auto model = f.overrides.load(existing(path));
  const std::string template_text = f.templates.template_text();
  const auto chat_template = require_chat_template(*model, template_text);
  GenerateOptions options = f.sampling.options(*model);
  if (repl.mask) options.mask = repl.mask(*model);
  ReasoningOptions reasoning = f.reasoning.options(*model, template_text, false);
  auto scheduler = make_single_scheduler(model, context_options, f.drafts.options(), true, f.runtime.verbose);
  warn_beyond_training(scheduler->context());
  ChatSession session(std::move(scheduler), chat_template, options, f.templates.system_text());
  session.set_template_variables(f.reasoning.variables());
  session.set_reasoning(std::move(reasoning));
  return session;
}

}  // namespace

int chat_command(const Arguments& arguments) {
  Flags flags("chat",
              "A conversation in the terminal, with the model's own chat template. Type /help in it for "
              "its commands.",
              "  assay chat model.gguf\n"
              "  assay chat model.gguf -sys 'You are a patient teacher.' --temp 0.3 -c 8192\n"
              "  assay chat model.gguf -p 'What is a tide?'             the first message, then yours\n"
              "  printf 'Hi\\nAnd in French?\\n' | assay chat model.gguf      each line is a message\n");
  ChatFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const ContextOptions context_options = f.runtime.options();
  ReplOptions options;
  options.first_message = f.first_message();
  options.single_turn = f.single_turn;
  options.colours = want_colour(f.colour);
  options.terminal = stdin_is_terminal() && stdout_is_terminal();
  options.drops_oldest = f.context_shift.value_or(true);
  options.keeps_history = options.terminal && !f.no_history;
  options.sampling = f.sampling;
  if (const auto constraint = f.constraint.constraint()) {
    options.mask = [constraint](const Model& model) {
      return constrain(constraint, std::make_shared<const TokenTree>(model));
    };
  }
  options.open = [&](const std::string& path) { return make_session(f, path, context_options, options); };
  ChatRepl repl(options.open(f.model.resolved()), options);
  catch_interrupts();
  return repl.run();
}

}  // namespace assay::cli
