// Standard input, output and the signals of a terminal program.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "assay/error.h"

namespace assay::cli {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
bool stderr_has_escapes();  // a terminal that rewrites a line where it is asked to: not TERM=dumb

// Standard output without buffering in between. A reader who has gone (broken pipe) is no error:
// what follows is dropped and gone() says so. Any other failure throws Error(io).
class Output {
 public:
  // On a terminal control characters are shown, not obeyed, but for line breaks and tabs (assay/utf8.h): files and
  // models write texts.
  void write(std::string_view text);
  void write_styled(std::string_view text);  // as it is: for text that has our own escapes, and no one else's
  bool gone() const noexcept { return gone_; }

 private:
  bool gone_ = false;
};

// Text on standard error, as it is. A standard error that is full or closed changes nothing: there is nowhere left to
// say so.
void to_stderr(std::string_view text) noexcept;
// One line on standard error: "assay: text", made printable.
void notice(std::string_view text);

std::string read_stdin();
std::string read_file(const std::string& path);   // Error(io) that names it
std::string read_input(const std::string& path);  // the same; "-" is standard input

// A file to write, opened before the work that fills it, so that a wrong path costs nothing; "-" is standard output.
// What was in it stays until write(); where nothing was and nothing is written, nothing is left.
class OutputFile {
 public:
  explicit OutputFile(std::string path);  // Error(io) that names it
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(std::string_view text);  // the whole content, once
  bool is_stdout() const noexcept { return path_ == "-"; }

 private:
  std::string path_;
  int fd_ = -1;
  bool is_new_ = false, written_ = false;
};

// Error(bad_request) where `out` would be written over a file that the command reads: the same path, a link to it or
// another name of it. Options that were not given, and "-", are no file.
void require_other_file(const std::optional<std::string>& out,
                        std::initializer_list<std::optional<std::string>> files_read);

// Colours: "auto" (a terminal that has them, and NO_COLOR is not set), "on", "off"; UsageError for anything else.
bool want_colour(const std::string& mode);

// For commands that generate: the first SIGINT or SIGTERM asks them to end, the second ends the
// process at once.
void catch_interrupts();
int interrupted() noexcept;  // the signal that came, or 0
void clear_interrupt() noexcept;
int exit_code_of_signal(int signal) noexcept;  // 130, 143
int exit_code_of(Errc code) noexcept;          // 1 to 4, as `assay --help` says
inline constexpr int kExitMismatch = 5;        // verify or a lint found something wrong

// For the whole process, once: a broken pipe is an error of write(), a model's file that is cut while mapped ends the
// process with one line, and no file that is opened takes the place of a standard stream that is closed.
void set_up_signals();

// A line on standard error that is rewritten while something takes longer than a second, with how
// long the rest will take at the speed so far; nothing where that is no terminal.
class Progress {
 public:
  explicit Progress(std::string what, std::string unit = "tokens");
  ~Progress();
  void update(int64_t done, int64_t total, const std::string& remark = "");

 private:
  std::string what_, unit_;
  int64_t start_ms_;
  int64_t last_done_ = 0;
  bool shown_ = false;
};

}  // namespace assay::cli
