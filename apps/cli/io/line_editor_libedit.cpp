// Lines from a terminal by libedit: editing, history, completion, UTF-8; pasted text as one line, where the terminal
// brackets it.
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "io/line_editor.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

constexpr const char* kBracketsOn = "\x1b[?2004h";
constexpr const char* kBracketsOff = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt;
  Complete complete;
  bool dropped = false;
  bool brackets = true;  // the terminal is asked to bracket what is pasted

  void ask_for_brackets(bool on) const {
    if (!brackets) return;
    std::fputs(on ? kBracketsOn : kBracketsOff, stdout);
    std::fflush(stdout);
  }

  static State& of(EditLine* e) {
    void* self = nullptr;
    el_get(e, EL_CLIENTDATA, &self);
    return *static_cast<State*>(self);
  }
  static char* show_prompt(EditLine* e) { return of(e).prompt.data(); }

  // One character. Unlike libedit's own reading it ends at a signal that asks the program to end.
  static int read_key(EditLine*, wchar_t* key) {
    std::mbstate_t state{};
    while (interrupted() == 0) {
      pollfd ready{STDIN_FILENO, POLLIN, 0};
      if (::poll(&ready, 1, 1000) <= 0) continue;  // a signal cuts it short
      char byte = 0;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return 0;
      const size_t used = std::mbrtowc(key, &byte, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;  // more bytes are to come
      if (used == static_cast<size_t>(-1)) *key = L'\xFFFD';
      if (used == 0) *key = L'\0';
      return 1;
    }
    return 0;
  }

  static unsigned char on_interrupt(EditLine* e, int) {
    of(e).dropped = true;
    std::fputs("^C\n", stdout);
    std::fflush(stdout);
    return CC_EOF;
  }

  static unsigned char on_suspend(EditLine* e, int) {
    of(e).ask_for_brackets(false);
    el_set(e, EL_PREP_TERM, 0);
    ::raise(SIGTSTP);  // goes on here once somebody says so
    el_set(e, EL_PREP_TERM, 1);
    of(e).ask_for_brackets(true);
    return CC_REDISPLAY;
  }

  static unsigned char on_tab(EditLine* e, int) {
    const State& self = of(e);
    if (!self.complete) return CC_ERROR;
    const LineInfo* line = el_line(e);
    const Completion found = self.complete({line->buffer, static_cast<size_t>(line->cursor - line->buffer)});
    if (!found.insert.empty()) return el_insertstr(e, found.insert.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    if (found.choices.empty()) return CC_ERROR;
    std::string list = "\n";
    for (const std::string& choice : found.choices) list += choice + "  ";
    Output().write(list + "\n");
    return CC_REDISPLAY;
  }

  // Up to the mark that ends it; line breaks as such, other control characters but tabs left out.
  static unsigned char on_paste(EditLine* e, int) {
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kPasteEnd)) {
      if (el_wgetc(e, &c) != 1) return CC_EOF;
      text += c;
    }
    text.resize(text.size() - kPasteEnd.size());
    std::wstring clean;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == L'\n' && i > 0 && text[i - 1] == L'\r') continue;
      const wchar_t shown = text[i] == L'\r' ? L'\n' : text[i];
      if (shown == L'\n' || shown == L'\t' || (shown >= L' ' && shown != L'\x7f')) clean += shown;
    }
    while (clean.ends_with(L'\n')) clean.pop_back();
    return clean.empty() || el_winsertstr(e, clean.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  void remember(const std::string& line) {
    HistEvent event;
    ::history(history, &event, H_ENTER, line.c_str());
  }
};

LineEditor::LineEditor(Complete complete, const std::vector<std::string>& lines) : state_(std::make_unique<State>()) {
  // Characters only: numbers keep their point in every locale.
  const char* locale = std::setlocale(LC_CTYPE, "");
  if (locale == nullptr || std::strcmp(locale, "C") == 0 || std::strcmp(locale, "POSIX") == 0)
    std::setlocale(LC_CTYPE, "C.UTF-8");
  const char* terminal = std::getenv("TERM");
  state_->brackets = terminal != nullptr && std::strcmp(terminal, "dumb") != 0;
  state_->complete = std::move(complete);
  state_->editor = el_init("assay", stdin, stdout, stderr);
  state_->history = history_init();
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, 1000);
  history(state_->history, &event, H_SETUNIQUE, 1);
  for (const std::string& line : lines) state_->remember(line);
  EditLine* const e = state_->editor;
  el_set(e, EL_CLIENTDATA, state_.get());
  el_set(e, EL_PROMPT, State::show_prompt);
  el_set(e, EL_EDITOR, "emacs");
  el_set(e, EL_HIST, history, state_->history);
  el_set(e, EL_SETTY, "-d", "-isig", nullptr);  // while editing, Ctrl-C and Ctrl-Z are keys
  el_wset(e, EL_GETCFN, State::read_key);
  // Wide names are taken as they lie; narrow ones it would copy, and keep for good.
  el_wset(e, EL_ADDFN, L"assay-interrupt", L"Drops the line", State::on_interrupt);
  el_wset(e, EL_ADDFN, L"assay-suspend", L"Suspends the program", State::on_suspend);
  el_wset(e, EL_ADDFN, L"assay-complete", L"Completes a word", State::on_tab);
  el_wset(e, EL_ADDFN, L"assay-paste", L"Takes what is pasted", State::on_paste);
  el_set(e, EL_BIND, "^C", "assay-interrupt", nullptr);
  el_set(e, EL_BIND, "^Z", "assay-suspend", nullptr);
  el_set(e, EL_BIND, "^I", "assay-complete", nullptr);
  el_set(e, EL_BIND, "\\e[200~", "assay-paste", nullptr);
  el_set(e, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
  if (state_->history) history_end(state_->history);
  if (state_->editor) el_end(state_->editor);
}

LineEditor::End LineEditor::read(const std::string& prompt, std::string& line) {
  state_->prompt = prompt;
  state_->dropped = false;
  state_->ask_for_brackets(true);
  el_set(state_->editor, EL_PREP_TERM,
         1);  // before the prompt: what is typed between it and el_gets()'s own call would be echoed twice
  int n = 0;
  const char* text = el_gets(state_->editor, &n);
  state_->ask_for_brackets(false);
  if (interrupted() != 0 && exit_code_of_signal(interrupted()) == 130) {  // from outside: Ctrl-C is a key here
    clear_interrupt();
    state_->dropped = true;
  }
  if (state_->dropped) {
    el_reset(state_->editor);
    return End::dropped;
  }
  if (text == nullptr || n <= 0) return End::end_of_input;
  line.assign(text, static_cast<size_t>(n));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  if (!line.empty()) state_->remember(line);
  return End::line;
}

}  // namespace assay::cli
