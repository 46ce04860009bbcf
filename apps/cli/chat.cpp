// assay chat: a conversation in the terminal. Where standard input is no terminal, each line of it
// is a message.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <map>

#include "assay/error.h"
#include "assay/session.h"
#include "assay/utf8.h"
#include "commands.h"
#include "line_editor.h"
#include "options.h"
#include "terminal.h"

namespace assay::cli {
namespace {

constexpr const char* kChatHelp =
    "/help                 this list\n"
    "/system TEXT          sets the system message from the next turn on; without TEXT: removes "
    "it\n"
    "/set NAME VALUE       changes a flag of sampling, e.g. /set temp 0.2; /set alone lists what "
    "was set\n"
    "/regen                answers the last message again\n"
    "/clear                forgets the conversation\n"
    "/save FILE, /load FILE  the conversation as JSON\n"
    "/stats                tokens and speed of the last answer\n"
    "/exit                 leaves (Ctrl-D too)\n"
    "\"\"\"                   begins and ends a message of several lines\n"
    "Ctrl-C                ends the answer, or drops the line\n";

struct Colours {
  std::string dim, off;
};

class Chat {
 public:
  Chat(ChatSession session, SamplingFlags sampling, Colours colours, bool terminal)
      : session_(std::move(session)),
        sampling_(std::move(sampling)),
        colours_(std::move(colours)),
        terminal_(terminal) {
    if (terminal_) editor_.emplace();
  }

  int run() {
    while (!leaving_ && !out_.gone()) {
      std::optional<std::string> line = read(terminal_ ? "> " : "");
      if (!line) break;
      if (line->starts_with("\"\"\"")) line = read_block(line->substr(3));
      if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
      try {
        if (line->starts_with('/')) {
          command(*line);
        } else {
          answer(&*line);
        }
      } catch (const std::runtime_error& e) {  // Error or UsageError: the conversation goes on
        notice(e.what());
        failed_ = true;
      }
      if (interrupted() != 0 && exit_code_of_signal(interrupted()) != 130)
        return exit_code_of_signal(interrupted());
      clear_interrupt();
    }
    if (terminal_ && !leaving_) out_.write("\n");
    return failed_ && !terminal_ ? 1 : 0;
  }

 private:
  std::optional<std::string> read(const std::string& prompt) {
    if (editor_) return editor_->read(prompt);
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    return line;
  }

  // The lines up to the one that ends with three quotation marks, or up to the end of input.
  std::string read_block(std::string first) {
    std::string text = std::move(first);
    while (!text.ends_with("\"\"\"")) {
      const std::optional<std::string> line = read(terminal_ ? ". " : "");
      if (!line) return text;
      if (!text.empty()) text += '\n';
      text += *line;
    }
    text.resize(text.size() - 3);
    return without_last_line_break(text);
  }

  void answer(const std::string* message) {  // null: again
    const auto show = [this](std::string_view text) { out_.write(text); };
    const auto cancelled = [this] { return interrupted() != 0 || out_.gone(); };
    if (message) require_utf8(*message, "the message");
    last_ =
        message ? session_.say(*message, show, cancelled) : session_.regenerate(show, cancelled);
    if (!last_.text.ends_with('\n')) out_.write("\n");
    if (last_.finish_reason == FinishReason::cancelled) status("stopped");
    if (last_.context_full)
      status(fmt::format("the context of {} tokens is full: /clear, or start with a larger -c",
                         session_.context().n_ctx()));
    if (terminal_) out_.write("\n");
  }

  void status(const std::string& text) {
    to_stderr(fmt::format("{}[{}]{}\n", colours_.dim, printable(text), colours_.off));
  }

  void command(const std::string& line) {
    const size_t blank = line.find(' ');
    const std::string name = line.substr(0, blank);
    const std::string rest =
        blank == std::string::npos ? "" : line.substr(line.find_first_not_of(' ', blank));
    if (name == "/help" || name == "/?") {
      out_.write(kChatHelp);
    } else if (name == "/exit" || name == "/quit" || name == "/bye") {
      leaving_ = true;
    } else if (name == "/system") {
      session_.set_system(rest);
      status(rest.empty() ? "no system message" : "system message set");
    } else if (name == "/set") {
      set(rest);
    } else if (name == "/regen") {
      answer(nullptr);
    } else if (name == "/clear") {
      session_.clear();
      status("forgotten");
    } else if (name == "/save") {
      save(rest);
    } else if (name == "/load") {
      if (rest.empty()) throw UsageError("/load needs a file's name");
      session_.load(read_file(rest));
      status(fmt::format("{} messages", session_.messages().size()));
    } else if (name == "/stats") {
      stats();
    } else {
      throw UsageError(fmt::format(
          "there is no command {}: /help lists them; begin the line with a blank to send it",
          name));
    }
  }

  void set(const std::string& rest) {
    if (rest.empty()) {
      for (const auto& [key, value] : changed_)
        out_.write(fmt::format("{} {}\n", key.substr(2), value));
      if (changed_.empty()) status("nothing set; e.g. /set temp 0.2");
      return;
    }
    const size_t blank = rest.find(' ');
    if (blank == std::string::npos)
      throw UsageError("/set needs a name and a value, e.g. /set temp 0.2");
    std::map<std::string, std::string> changed = changed_;
    changed[(rest[0] == '-' ? "" : "--") + rest.substr(0, blank)] =
        rest.substr(rest.find_first_not_of(' ', blank));
    SamplingFlags sampling = sampling_;
    Flags flags("chat", "", "", Flags::Environment::ignored);
    sampling.add(flags);
    std::vector<std::string> arguments;
    for (const auto& [key, value] : changed) arguments.push_back(key + "=" + value);
    flags.parse(arguments);
    session_.options() = sampling.options(session_.context().model());
    changed_ = std::move(changed);
    status("set");
  }

  void save(const std::string& path) {
    if (path.empty()) throw UsageError("/save needs a file's name");
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << session_.save();
    file.close();
    if (!file) throw Error(Errc::io, fmt::format("{}: could not be written", path));
    status(fmt::format("{} messages", session_.messages().size()));
  }

  void stats() {
    const Context& context = session_.context();
    out_.write(
        fmt::format("prompt {} tokens, {} of them kept from before; {:.1f} tokens/s\nanswer {} "
                    "tokens, {:.1f} tokens/s, ended by {}\n"
                    "context {} of {} tokens\n",
                    last_.n_prompt, last_.n_prompt_cached, last_.prefill.tokens_per_second(),
                    last_.ids.size(), last_.decode.tokens_per_second(), name(last_.finish_reason),
                    context.n_past(), context.n_ctx()));
  }

  ChatSession session_;
  SamplingFlags sampling_;
  Colours colours_;
  bool terminal_;
  bool leaving_ = false;
  bool failed_ = false;
  Output out_;
  Generation last_;
  std::map<std::string, std::string> changed_;  // by --name
  std::optional<LineEditor> editor_;
};

}  // namespace

int chat_command(const Arguments& arguments) {
  Flags flags(
      "chat",
      "A conversation in the terminal, with the model's own chat template. Type /help in it for "
      "its commands.",
      "  assay chat model.gguf\n"
      "  assay chat model.gguf -sys 'You are a patient teacher.' --temp 0.3 -c 8192\n"
      "  printf 'Hi\\nAnd in French?\\n' | assay chat model.gguf      each line is a message\n");
  ModelFlag model_flag;
  RuntimeFlags runtime;
  SamplingFlags sampling;
  TemplateFlags templates;
  std::string colour = "auto";
  model_flag.add(flags);
  add_colour(flags, colour);
  sampling.add(flags);
  templates.add(flags);
  runtime.add(flags);
  add_conversation_habits(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const std::string path = model_flag.path();
  const ContextOptions context_options = runtime.options();
  const bool colours = want_colour(colour);
  const bool terminal = stdin_is_terminal() && stdout_is_terminal();
  const auto model = Model::load(existing(path));
  const auto chat_template = require_chat_template(*model, templates.template_text());
  Progress progress("reading the conversation");
  Context context = make_context(model, context_options, runtime.verbose);
  warn_beyond_training(context);
  context.set_progress([&](int64_t done, int64_t total) {
    if (total > 1) progress.update(done, total);
  });
  ChatSession session(std::move(context), chat_template, sampling.options(*model),
                      templates.system_text());
  if (terminal) {
    to_stderr(fmt::format("{}, {} positions. /help lists the commands, Ctrl-D leaves.\n",
                          printable(model->name()), session.context().n_ctx()));
  }
  catch_interrupts();
  return Chat(std::move(session), sampling, colours ? Colours{"\x1b[2m", "\x1b[0m"} : Colours{},
              terminal)
      .run();
}

}  // namespace assay::cli
