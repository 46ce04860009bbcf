// A conversation in the terminal: lines in, answers out, and commands that begin with a slash.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/session.h"
#include "commands/completion.h"
#include "flags/options.h"
#include "io/history_file.h"
#include "io/line_editor.h"
#include "io/terminal.h"

namespace assay::cli {

struct ReplOptions {
  bool terminal = false, colours = false;
  bool drops_oldest = true;    // where the context is full
  bool keeps_history = false;  // in its file
  bool single_turn = false;    // ends after one answer
  std::optional<std::string> first_message;
  SamplingFlags sampling;
  std::function<TokenMask(const Model&)> mask;               // of answers; empty: any text
  std::function<ChatSession(const std::string& path)> open;  // a conversation with another model
};

class ChatRepl {
 public:
  ChatRepl(ChatSession session, const ReplOptions& options);
  int run();  // the exit code

 private:
  struct Command {
    const char* name;
    const char* argument;  // as help shows it
    const char* help;
    void (ChatRepl::*run)(const std::string& rest);
    bool takes_file = false;
  };
  static const std::vector<Command>& commands();
  static CompletionWords words();

  LineEditor::End read(const std::string& prompt, std::string& line);
  bool read_block(std::string first, std::string& text);
  void take(const std::string& message);
  void attempt(const std::function<void()>& work);
  void obey(const std::string& line);
  void answer(const std::string* message);
  void show_reasoning(std::string_view text);
  void status(const std::string& text);
  void adopt(ChatSession session);
  GenerateOptions sampled(const std::map<std::string, std::string>& changed, const Model& model) const;
  void open_history();
  void remember(const std::string& text);

  void help(const std::string& rest);
  void system(const std::string& rest);
  void set(const std::string& rest);
  void regenerate(const std::string& rest);
  void undo(const std::string& rest);
  void clear(const std::string& rest);
  void save(const std::string& rest);
  void load(const std::string& rest);
  void model(const std::string& rest);
  void tokens(const std::string& rest);
  void think(const std::string& rest);
  void stats(const std::string& rest);
  void leave(const std::string& rest);

  ReplOptions options_;
  std::optional<ChatSession> session_;
  std::optional<HistoryFile> history_;
  std::optional<LineEditor> editor_;
  std::string dim_, off_;
  bool leaving_ = false, failed_ = false;
  bool shows_reasoning_ = true, in_reasoning_ = false;
  DroppedTurns dropped_;  // since the last line that said so
  Output out_;
  Progress progress_{"reading the conversation"};
  Generation last_;
  std::map<std::string, std::string> changed_;  // by --name
};

}  // namespace assay::cli
