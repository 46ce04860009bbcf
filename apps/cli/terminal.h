// Standard input, output and the signals of a terminal program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "assay/error.h"

namespace assay::cli {

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

// Standard output without buffering in between. A reader who has gone (broken pipe) is no error:
// what follows is dropped and gone() says so. Any other failure throws Error(io).
class Output {
 public:
  void write(std::string_view text);
  bool gone() const noexcept { return gone_; }

 private:
  bool gone_ = false;
};

// One line on standard error: "assay: text".
void notice(std::string_view text);

std::string read_stdin();
std::string read_file(const std::string& path);  // Error(io) that names it

// Colours: "auto" (a terminal, and NO_COLOR is not set), "on", "off"; UsageError for anything else.
bool want_colour(const std::string& mode);

// For commands that generate: the first SIGINT or SIGTERM asks them to end, the second ends the
// process at once.
void catch_interrupts();
int interrupted() noexcept;  // the signal that came, or 0
void clear_interrupt() noexcept;
int exit_code_of_signal(int signal) noexcept;  // 130, 143
int exit_code_of(Errc code) noexcept;          // 1 to 4, as `assay --help` says
inline constexpr int kExitMismatch = 5;        // verify or a lint found something wrong

// For the whole process, once: a broken pipe is an error of write(), and a model's file that is cut
// while mapped ends the process with one line.
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
