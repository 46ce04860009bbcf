// Running a program on a pseudo-terminal.
#include "programs/terminal_program.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "programs/program.h"

namespace assay::test {

using Clock = std::chrono::steady_clock;

TerminalProgram::TerminalProgram(const std::string& path, const std::vector<std::string>& arguments,
                                 const std::map<std::string, std::string>& environment) {
  winsize size{};
  size.ws_row = 50;
  size.ws_col = 200;
  pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::runtime_error("forkpty");
  if (pid_ > 0) return;
  ::setenv("TERM", "xterm", 1);
  become_program(path, arguments, environment);
}

TerminalProgram::~TerminalProgram() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(fd_);
}

void TerminalProgram::type(std::string_view keys) {
  if (::write(fd_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) throw std::runtime_error("type");
}

bool TerminalProgram::read_some(int timeout_ms) {
  pollfd ready{fd_, POLLIN, 0};
  if (::poll(&ready, 1, timeout_ms) <= 0) return false;
  char buffer[4096];
  const ssize_t n = ::read(fd_, buffer, sizeof buffer);
  if (n > 0) output_.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

bool TerminalProgram::shows(std::string_view text, std::chrono::seconds time_limit) {
  const auto deadline = Clock::now() + time_limit;
  while (true) {
    const size_t at = output_.find(text, seen_);
    if (at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (Clock::now() > deadline) return false;
    read_some(100);
  }
}

void TerminalProgram::send(int signal) { ::kill(pid_, signal); }

int TerminalProgram::exit_code(std::chrono::seconds time_limit) {
  const auto deadline = Clock::now() + time_limit;
  while (Clock::now() < deadline) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      while (read_some(0)) {
      }
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    read_some(50);
  }
  return -1;
}

}  // namespace assay::test
