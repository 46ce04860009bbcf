// Pseudo-terminals, by POSIX.
#include "programs/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "programs/program.h"

namespace assay::test {

TerminalResult run_on_terminal(const std::string& path, const std::vector<std::string>& arguments,
                               const std::string& input, const std::map<std::string, std::string>& environment) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child < 0) throw std::runtime_error("forkpty");
  if (child == 0) become_program(path, arguments, environment);
  if (!input.empty() && ::write(terminal, input.data(), input.size()) < 0)
    throw std::runtime_error("write to a terminal");
  TerminalResult result;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  char buffer[4096];
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd polled{terminal, POLLIN, 0};
    if (::poll(&polled, 1, 100) <= 0) continue;
    const ssize_t n = ::read(terminal, buffer, sizeof buffer);
    if (n <= 0) break;  // EIO: the other side is closed
    result.shown.append(buffer, static_cast<size_t>(n));
  }
  if (std::chrono::steady_clock::now() >= deadline) ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace assay::test
