// Lines from a terminal by libedit: editing, history of this run, UTF-8.
#include <histedit.h>

#include <clocale>
#include <cstdio>
#include <cstring>

#include "line_editor.h"

namespace assay::cli {

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;

  static char* show_prompt(EditLine* e) {
    void* self = nullptr;
    el_get(e, EL_CLIENTDATA, &self);
    return static_cast<State*>(self)->prompt.data();
  }
};

LineEditor::LineEditor() : state_(std::make_unique<State>()) {
  // Characters only: numbers keep their point in every locale.
  const char* locale = std::setlocale(LC_CTYPE, "");
  if (locale == nullptr || std::strcmp(locale, "C") == 0 || std::strcmp(locale, "POSIX") == 0)
    std::setlocale(LC_CTYPE, "C.UTF-8");
  state_->editor = el_init("assay", stdin, stdout, stderr);
  state_->history = history_init();
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, 1000);
  history(state_->history, &event, H_SETUNIQUE, 1);
  el_set(state_->editor, EL_CLIENTDATA, state_.get());
  el_set(state_->editor, EL_PROMPT, State::show_prompt);
  el_set(state_->editor, EL_EDITOR, "emacs");
  el_set(state_->editor, EL_HIST, history, state_->history);
  el_set(state_->editor, EL_SETTY, "-d", "-isig", nullptr);  // while editing, Ctrl-C is a key
  el_set(state_->editor, EL_BIND, "^C", "em-kill-line", nullptr);
  el_set(state_->editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
  if (state_->history) history_end(state_->history);
  if (state_->editor) el_end(state_->editor);
}

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  state_->prompt = prompt;
  int n = 0;
  const char* text = el_gets(state_->editor, &n);
  if (text == nullptr || n <= 0) return std::nullopt;
  std::string line(text, static_cast<size_t>(n));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) history(state_->history, &event, H_ENTER, line.c_str());
  return line;
}

}  // namespace assay::cli
