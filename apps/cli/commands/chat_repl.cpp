// See chat_repl.h.
#include "commands/chat_repl.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "assay/error.h"
#include "assay/utf8.h"

namespace assay::cli {
namespace {

// The flags of sampling, which /set changes.
std::vector<std::string> setting_names(const Flags& flags) {
  std::vector<std::string> names = flags.long_names();
  for (std::string& name : names) name.erase(0, 2);
  return names;
}

}  // namespace

const std::vector<ChatRepl::Command>& ChatRepl::commands() {
  static const std::vector<Command> all = {
      {"/help", "", "this list", &ChatRepl::help},
      {"/system", "TEXT", "sets the system message from the next turn on; without TEXT: removes it", &ChatRepl::system},
      {"/set", "NAME VALUE",
       "changes a flag of sampling, e.g. /set temp 0.2; /set NAME default: undoes that; /set alone: lists what was set",
       &ChatRepl::set},
      {"/regen", "", "answers the last message again", &ChatRepl::regenerate},
      {"/undo", "", "forgets the last message and its answer", &ChatRepl::undo},
      {"/clear", "", "forgets the conversation", &ChatRepl::clear},
      {"/save", "FILE", "writes the conversation as JSON", &ChatRepl::save, true},
      {"/load", "FILE", "reads it again", &ChatRepl::load, true},
      {"/model", "MODEL", "goes on with another model; without MODEL: says which one answers", &ChatRepl::model, true},
      {"/tokens", "TEXT", "the tokens of TEXT; without it: how full the context is", &ChatRepl::tokens},
      {"/think", "", "shows or hides what the model thinks before it answers", &ChatRepl::think},
      {"/stats", "", "tokens and speed of the last answer", &ChatRepl::stats},
      {"/exit", "", "leaves (Ctrl-D too)", &ChatRepl::leave},
  };
  return all;
}

CompletionWords ChatRepl::words() {
  CompletionWords words;
  for (const Command& c : commands()) {
    words.commands.push_back(c.name);
    if (c.takes_file) words.file_commands.push_back(c.name);
  }
  Flags flags("chat", "", "", Flags::Environment::ignored);
  SamplingFlags sampling;
  sampling.add(flags);
  words.settings = setting_names(flags);
  return words;
}

ChatRepl::ChatRepl(ChatSession session, const ReplOptions& options) : options_(options) {
  if (options_.colours) dim_ = "\x1b[2m", off_ = "\x1b[0m";
  adopt(std::move(session));
  if (options_.keeps_history) open_history();
  if (options_.terminal) {
    editor_.emplace([known = words()](std::string_view line) { return complete(line, known); },
                    history_ ? history_->lines() : std::vector<std::string>());
    to_stderr(fmt::format("{}, {} positions. /help lists the commands, Ctrl-D leaves.\n",
                          printable(session_->context().model().name()), session_->context().n_ctx()));
  }
}

void ChatRepl::open_history() {
  const std::string path = default_history_path();
  try {
    if (!path.empty()) history_.emplace(path);
  } catch (const Error& e) {
    notice(fmt::format("no history: {} (--no-history does without)", e.what()));
  }
}

void ChatRepl::remember(const std::string& text) {
  try {
    if (history_) history_->add(text);
  } catch (const Error& e) {  // the conversation does without
    notice(fmt::format("no history any more: {}", e.what()));
    history_.reset();
  }
}

// Takes a conversation as its own: what it shows and what it does where the context is full.
void ChatRepl::adopt(ChatSession session) {
  session_.emplace(std::move(session));
  session_->set_progress([this](int64_t done, int64_t total) {
    if (total > 1) progress_.update(done, total);
  });
  session_->set_reasoning_sink([this](std::string_view text) { show_reasoning(text); });
  if (!options_.drops_oldest) return;
  session_->set_when_full(WhenFull::drop_oldest, [this](const DroppedTurns& dropped) {
    dropped_.n_messages += dropped.n_messages;
    dropped_.n_tokens += dropped.n_tokens;
  });
}

int ChatRepl::run() {
  if (options_.first_message) {
    if (options_.terminal) out_.write(fmt::format("> {}\n", *options_.first_message));
    take(*options_.first_message);
    if (interrupted() != 0 && exit_code_of_signal(interrupted()) != 130) return exit_code_of_signal(interrupted());
    clear_interrupt();
  }
  while (!leaving_ && !out_.gone()) {
    std::string line;
    const LineEditor::End end = read(options_.terminal ? "> " : "", line);
    if (interrupted() != 0 && exit_code_of_signal(interrupted()) != 130) return exit_code_of_signal(interrupted());
    if (end == LineEditor::End::end_of_input) break;
    std::string text = line;
    if (end == LineEditor::End::dropped || (line.starts_with("\"\"\"") && !read_block(line.substr(3), text))) continue;
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    remember(text);
    if (line.starts_with('/')) {
      attempt([&] { obey(line); });
    } else {
      take(text);
    }
    if (interrupted() != 0 && exit_code_of_signal(interrupted()) != 130) return exit_code_of_signal(interrupted());
    clear_interrupt();
  }
  if (options_.terminal && !leaving_) out_.write("\n");
  return failed_ && (!options_.terminal || options_.single_turn) ? 1 : 0;
}

void ChatRepl::take(const std::string& message) {
  attempt([&] { answer(&message); });
  leaving_ = leaving_ || options_.single_turn;
}

void ChatRepl::attempt(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::runtime_error& e) {  // Error or UsageError: the conversation goes on
    notice(e.what());
    failed_ = true;
  }
}

LineEditor::End ChatRepl::read(const std::string& prompt, std::string& line) {
  if (editor_) return editor_->read(prompt, line);
  if (!std::getline(std::cin, line)) return LineEditor::End::end_of_input;
  if (line.ends_with('\r')) line.pop_back();  // of a file whose lines end with CR and LF
  return LineEditor::End::line;
}

// The lines up to the one that ends with three quotation marks, or up to the end of input. False where Ctrl-C dropped
// them.
bool ChatRepl::read_block(std::string first, std::string& text) {
  text = std::move(first);
  while (!text.ends_with("\"\"\"")) {
    std::string line;
    const LineEditor::End end = read(options_.terminal ? ". " : "", line);
    if (end == LineEditor::End::dropped) return false;
    if (end == LineEditor::End::end_of_input) return true;
    if (!text.empty()) text += '\n';
    text += line;
  }
  text.resize(text.size() - 3);
  text = without_last_line_break(text);
  return true;
}

void ChatRepl::show_reasoning(std::string_view text) {
  if (!options_.terminal || !shows_reasoning_) return;
  if (!in_reasoning_) out_.write(dim_.empty() ? "[thinking]\n" : "");
  in_reasoning_ = true;
  out_.write_styled(dim_);
  out_.write(text);
  out_.write_styled(off_);
}

void ChatRepl::answer(const std::string* message) {  // null: again
  const auto show = [this](std::string_view text) {
    if (in_reasoning_) out_.write(dim_.empty() ? "\n[answer]\n" : "\n\n");
    in_reasoning_ = false;
    out_.write(text);
  };
  const auto cancelled = [this] { return interrupted() != 0 || out_.gone(); };
  if (message) require_utf8(*message, "the message");
  in_reasoning_ = false;
  try {
    last_ = message ? session_->say(*message, show, cancelled) : session_->regenerate(show, cancelled);
  } catch (const Error&) {
    if (in_reasoning_) out_.write("\n");
    if (session_->did_not_fit()) {
      status(options_.drops_oldest
                 ? "this message alone is too long: start with a larger -c"
                 : "/undo or /clear makes room; without --no-context-shift the oldest turns are left out");
    }
    throw;
  }
  if (!last_.text.ends_with('\n')) out_.write("\n");
  const int64_t n_ctx = session_->context().n_ctx();
  if (dropped_.n_messages > 0) {
    status(fmt::format("the context of {} tokens is full: the {} oldest messages, {} tokens, are left out from here on",
                       n_ctx, dropped_.n_messages, dropped_.n_tokens));
    dropped_ = {};
  }
  if (last_.finish_reason == FinishReason::cancelled) {
    status(last_.ids.empty() ? "stopped before the answer began: the conversation is as it was" : "stopped");
  }
  if (last_.context_full) {
    status(fmt::format("the context of {} tokens is full{}: /undo, /clear, or start with a larger -c", n_ctx,
                       options_.drops_oldest ? ", and this turn alone fills it" : ""));
  }
  if (options_.terminal) out_.write("\n");
}

void ChatRepl::status(const std::string& text) { to_stderr(fmt::format("{}[{}]{}\n", dim_, printable(text), off_)); }

void ChatRepl::obey(const std::string& line) {
  const size_t blank = line.find(' ');
  std::string name = line.substr(0, blank);
  const size_t begin = blank == std::string::npos ? std::string::npos : line.find_first_not_of(' ', blank);
  std::string rest = begin == std::string::npos ? "" : line.substr(begin);
  if (name == "/?") name = "/help";
  if (name == "/quit" || name == "/bye") name = "/exit";
  const auto command =
      std::find_if(commands().begin(), commands().end(), [&](const Command& c) { return name == c.name; });
  if (command == commands().end()) {
    throw UsageError(
        fmt::format("there is no command {}: /help lists them; begin the line with a blank to send it", name));
  }
  if (*command->argument == '\0' && rest.find_first_not_of(' ') != std::string::npos) {
    throw UsageError(fmt::format("{} takes nothing after it, found '{}'", name, rest));
  }
  if (command->takes_file) {
    while (rest.ends_with(' ')) rest.pop_back();
    rest = expand_home(rest);
  }
  (this->*command->run)(rest);
}

void ChatRepl::help(const std::string&) {
  std::string text;
  for (const Command& c : commands())
    text += fmt::format("{:<22}{}\n", fmt::format("{} {}", c.name, c.argument), c.help);
  out_.write(text +
             "\"\"\"                   begins and ends a message of several lines\n"
             "Ctrl-C                ends the answer, drops the line, or leaves \"\"\"\n");
}

void ChatRepl::system(const std::string& rest) {
  session_->set_system(rest);
  status(rest.empty() ? "no system message" : "system message set");
}

GenerateOptions ChatRepl::sampled(const std::map<std::string, std::string>& changed, const Model& model) const {
  SamplingFlags sampling = options_.sampling;
  Flags flags("chat", "", "", Flags::Environment::ignored);
  sampling.add(flags);
  std::vector<std::string> arguments;
  for (const auto& [key, value] : changed) arguments.push_back(key + "=" + value);
  flags.parse(arguments);
  GenerateOptions result = sampling.options(model);
  if (options_.mask) result.mask = options_.mask(model);
  return result;
}

void ChatRepl::set(const std::string& rest) {
  if (rest.empty()) {
    for (const auto& [key, value] : changed_) out_.write(fmt::format("{} {}\n", key.substr(2), value));
    if (changed_.empty()) status("nothing set; e.g. /set temp 0.2");
    return;
  }
  const size_t blank = rest.find(' ');
  if (blank == std::string::npos) throw UsageError("/set needs a name and a value, e.g. /set temp 0.2");
  const std::string name = rest.substr(0, blank), value = rest.substr(rest.find_first_not_of(' ', blank));
  const size_t dashes = std::min(name.find_first_not_of('-'), name.size());
  const std::vector<std::string> known = words().settings;
  const std::string plain = name.substr(dashes);
  if (std::find(known.begin(), known.end(), plain) == known.end()) {
    throw UsageError(fmt::format("/set {}: there is no such setting; Tab after /set lists them", name));
  }
  std::map<std::string, std::string> changed = changed_;
  std::string flag = "--";
  flag += plain;
  if (value == "default") {
    changed.erase(flag);
  } else {
    changed[flag] = value;
  }
  try {
    session_->options() = sampled(changed, session_->context().model());
  } catch (const UsageError& e) {  // of a flag; here it has another name
    const std::string what = e.what();
    throw UsageError(what.starts_with(flag) ? "/set " + what.substr(2) : what);
  }
  changed_ = std::move(changed);
  status(value == "default" ? "as at the start" : "set");
}

void ChatRepl::regenerate(const std::string&) { answer(nullptr); }

void ChatRepl::undo(const std::string&) {
  if (!session_->undo()) throw UsageError("there is nothing to undo");
  status(fmt::format("{} messages are left", session_->messages().size()));
}

void ChatRepl::clear(const std::string&) {
  session_->clear();
  status("forgotten");
}

void ChatRepl::save(const std::string& rest) {
  if (rest.empty()) throw UsageError("/save needs a file's name");
  require_other_file(rest, {session_->context().model().path()});
  OutputFile(rest).write(session_->save());
  status(fmt::format("{} messages", session_->messages().size()));
}

void ChatRepl::load(const std::string& rest) {
  if (rest.empty()) throw UsageError("/load needs a file's name");
  try {
    session_->load(read_file(rest));
  } catch (const Error& e) {
    const std::string what = e.what();
    throw Error(e.code, what.starts_with(rest) ? what : fmt::format("{}: {}", rest, what));
  }
  status(fmt::format("{} messages", session_->messages().size()));
}

void ChatRepl::model(const std::string& rest) {
  if (!rest.empty()) {
    ChatSession next = options_.open(rest);
    next.options() = sampled(changed_, next.context().model());
    next.load(session_->save());
    adopt(std::move(next));
  }
  const Context& context = session_->context();
  status(fmt::format("{}, {}, {} positions, {}", context.model().name(), context.model().path(), context.n_ctx(),
                     context.kernels()));
}

void ChatRepl::tokens(const std::string& rest) {
  const Context& context = session_->context();
  const Tokenizer& tokenizer = *context.model().tokenizer();
  if (!rest.empty()) {
    const std::vector<TokenId> ids =
        tokenizer.encode(rest, {.parse_special = false, .add_bos = false, .add_eos = false});
    for (const TokenId id : ids) out_.write(fmt::format("{:>8}  {}\n", id, token_label(tokenizer, id)));
    return;
  }
  const int64_t n_dropped = session_->n_messages_dropped();
  out_.write(
      fmt::format("{} of {} are in the context\n{}, {}\n", count_of(last_.n_in_context, "token"), context.n_ctx(),
                  count_of(static_cast<int64_t>(session_->messages().size()), "message"),
                  n_dropped == 0 ? "none of them left out" : fmt::format("the {} oldest of them left out", n_dropped)));
}

void ChatRepl::think(const std::string&) {
  shows_reasoning_ = !shows_reasoning_;
  status(shows_reasoning_ ? "what the model thinks is shown" : "what the model thinks is hidden");
}

void ChatRepl::stats(const std::string&) {
  const Context& context = session_->context();
  const int64_t n_read = last_.n_prompt_cached + last_.prefill.tokens;  // fewer than all where it was interrupted
  const std::string prompt = count_of(last_.n_prompt, "token");
  const std::string read =
      fmt::format("{}, {} of them kept from before",
                  n_read < last_.n_prompt ? fmt::format("{} of {}", n_read, prompt) : prompt, last_.n_prompt_cached);
  out_.write(fmt::format(
      "prompt {}\nanswer {}, {}\n"
      "context {} of {}\nseed {}\n",
      with_rate(read, last_.prefill.tokens_per_second()),
      with_rate(count_of(static_cast<int64_t>(last_.ids.size()), "token"), last_.decode.tokens_per_second()),
      last_.n_prompt == 0 ? "none yet" : fmt::format("ended by {}", name(last_.finish_reason)), last_.n_in_context,
      count_of(context.n_ctx(), "token"), session_->options().sampling.seed));
}

void ChatRepl::leave(const std::string&) { leaving_ = true; }

}  // namespace assay::cli
